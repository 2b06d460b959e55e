//! The resource that a path names.

use ifmatch_blob::name;

use crate::entity::key::EntityKey;
use crate::error::{ErrorCode, TableError};
use crate::storage::tables::TableName;

/// The resource that a path names, below the account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TableResource {
    /// The account: `/{account}`.
    Service,
    /// All tables: `Tables`.
    Tables,
    /// A table: `Tables('name')`.
    Table(TableName),
    /// The entities of a table: `name` or `name()`.
    Entities(TableName),
    /// An entity: `name(PartitionKey='…',RowKey='…')`.
    Entity(TableName, EntityKey),
    /// Entity group transactions: `$batch`.
    Batch,
}

impl TableResource {
    /// Parses a raw path that begins with the account's name.
    ///
    /// # Errors
    /// The path names no resource.
    pub(crate) fn parse(path: &str) -> Result<Self, TableError> {
        let unknown = || TableError::new(ErrorCode::InvalidUri);
        let inner = path
            .strip_prefix('/')
            .and_then(|path| path.split_once('/'))
            .map_or("", |(_, inner)| inner);
        if inner.contains('/') {
            return Err(unknown());
        }
        let inner = name::decode(inner).map_err(|error| unknown().detail(error.to_string()))?;
        let Some((name, keys)) = inner.split_once('(') else {
            return Self::plain(&inner);
        };
        let keys = keys.strip_suffix(')').ok_or_else(unknown)?;
        match (name, keys) {
            (name, "") => Self::plain(name),
            ("Tables", keys) => {
                let (table, rest) = quoted(keys).ok_or_else(unknown)?;
                if rest.is_empty() {
                    TableName::new(&table).map(Self::Table)
                } else {
                    Err(unknown())
                }
            }
            (name, keys) => {
                let wrong = || {
                    TableError::invalid(
                        "an entity must be addressed as (PartitionKey='…',RowKey='…')",
                    )
                };
                let (partition, row) = pair(keys).ok_or_else(wrong)?;
                Ok(Self::Entity(
                    TableName::new(name)?,
                    EntityKey::new(&partition, &row)?,
                ))
            }
        }
    }

    /// Returns the resource with this name, without keys.
    fn plain(name: &str) -> Result<Self, TableError> {
        Ok(match name {
            "" => Self::Service,
            "$batch" => Self::Batch,
            "Tables" => Self::Tables,
            name => Self::Entities(TableName::new(name)?),
        })
    }
}

/// Splits off a leading text in quotes, within which a quote is doubled.
pub(crate) fn quoted(text: &str) -> Option<(String, &str)> {
    let mut rest = text.strip_prefix('\'')?;
    let mut value = String::new();
    loop {
        let (before, after) = rest.split_once('\'')?;
        value.push_str(before);
        match after.strip_prefix('\'') {
            Some(after) => rest = after,
            None => return Some((value, after)),
        }
        value.push('\'');
    }
}

/// Parses both keys, in any order.
fn pair(text: &str) -> Option<(String, String)> {
    let (first, value, rest) = named(text)?;
    let (second, other, rest) = named(rest.strip_prefix(',')?)?;
    match (first, second, rest) {
        ("PartitionKey", "RowKey", "") => Some((value, other)),
        ("RowKey", "PartitionKey", "") => Some((other, value)),
        _ => None,
    }
}

/// Parses a name and its value, and returns the rest.
fn named(text: &str) -> Option<(&str, String, &str)> {
    let (name, rest) = text.split_once('=')?;
    let (value, rest) = quoted(rest)?;
    Some((name.trim(), value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> TableName {
        TableName::new(name).expect("valid")
    }

    #[test]
    fn paths_name_tables_and_entities() {
        let entity = |partition, row| {
            TableResource::Entity(table("tab"), EntityKey::new(partition, row).expect("valid"))
        };
        let rows = [
            ("/a", TableResource::Service),
            ("/a/", TableResource::Service),
            ("/a/Tables", TableResource::Tables),
            ("/a/Tables()", TableResource::Tables),
            ("/a/Tables('tab')", TableResource::Table(table("tab"))),
            ("/a/Tables(%27tab%27)", TableResource::Table(table("tab"))),
            ("/a/tab", TableResource::Entities(table("tab"))),
            ("/a/tab()", TableResource::Entities(table("tab"))),
            ("/a/$batch", TableResource::Batch),
            ("/a/tab(PartitionKey='p',RowKey='r')", entity("p", "r")),
            ("/a/tab(RowKey='r',PartitionKey='p')", entity("p", "r")),
            ("/a/tab(PartitionKey='',RowKey='')", entity("", "")),
            (
                "/a/tab(PartitionKey='o''b',RowKey='''')",
                entity("o'b", "'"),
            ),
            (
                "/a/tab(PartitionKey='a%2C%20(x,y)',RowKey=')%26+')",
                entity("a, (x,y)", ")&+"),
            ),
            (
                "/a/tab(PartitionKey='%25',RowKey='%C3%A9')",
                entity("%", "é"),
            ),
        ];
        for (path, address) in rows {
            assert_eq!(
                TableResource::parse(path).expect("an address"),
                address,
                "{path}"
            );
        }
    }

    #[test]
    fn rejects_other_paths() {
        let rows = [
            ("/a/tab/more", ErrorCode::InvalidUri),
            ("/a/tab(PartitionKey='p',RowKey='r'", ErrorCode::InvalidUri),
            ("/a/Tables('tab'x)", ErrorCode::InvalidUri),
            ("/a/%zz", ErrorCode::InvalidUri),
            ("/a/%FF", ErrorCode::InvalidUri),
            ("/a/tab('p')", ErrorCode::InvalidInput),
            (
                "/a/tab(PartitionKey='p',RowKey='r',)",
                ErrorCode::InvalidInput,
            ),
            ("/a/tab(PartitionKey='p')", ErrorCode::InvalidInput),
            (
                "/a/tab(PartitionKey='p',PartitionKey='r')",
                ErrorCode::InvalidInput,
            ),
            (
                "/a/tab(PartitionKey='p',RowKey='r'x)",
                ErrorCode::InvalidInput,
            ),
            (
                "/a/tab(PartitionKey='p',RowKey='%2F')",
                ErrorCode::InvalidInput,
            ),
            ("/a/tab(PartitionKey=p,RowKey='r')", ErrorCode::InvalidInput),
            ("/a/ta", ErrorCode::OutOfRangeInput),
            ("/a/1tab", ErrorCode::InvalidResourceName),
            ("/a/Tables('tables')", ErrorCode::InvalidResourceName),
        ];
        for (path, code) in rows {
            assert_eq!(
                TableResource::parse(path).unwrap_err().code(),
                code,
                "{path}"
            );
        }
    }
}
