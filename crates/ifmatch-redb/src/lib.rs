//! A durable ifmatch register in an embedded redb database.
