"""A party's rows as shards on the party's own cluster: workers return exact integers, this process alone debits, draws noise and sends."""
