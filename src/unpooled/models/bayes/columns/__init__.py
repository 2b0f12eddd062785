"""Linear regression from the joint moments of columns at different parties (:mod:`unpooled.products`)."""
