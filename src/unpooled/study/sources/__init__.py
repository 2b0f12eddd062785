"""Databases and files behind a query: what a party names as ``data = "sql:..."`` and a program as :class:`unpooled.Source`."""
