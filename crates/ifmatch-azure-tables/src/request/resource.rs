//! The resource that a path names.

use ifmatch_blob::name;

use crate::entity::key::EntityKey;
use crate::error::{Code, TableError};
use crate::storage::tables::TableName;

/// The resource that a path names, below the account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
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

impl Resource {
    /// Parses a raw path that begins with the account's name.
    ///
    /// # Errors
    /// The path names no resource.
    pub(crate) fn parse(path: &str) -> Result<Self, TableError> {
        let unknown = || TableError::new(Code::InvalidUri);
        let inner = path.strip_prefix('/').and_then(|path| path.split_once('/')).map_or("", |(_, inner)| inner);
        if inner.contains('/') {
            return Err(unknown());
        }
        let inner = name::decode(inner).map_err(|error| unknown().detail(error.to_string()))?;
        let Some((name, keys)) = inner.split_once('(') else { return Self::plain(&inner) };
        let keys = keys.strip_suffix(')').ok_or_else(unknown)?;
        match (name, keys) {
            (name, "") => Self::plain(name),
            ("Tables", keys) => {
                let (table, rest) = quoted(keys).ok_or_else(unknown)?;
                if rest.is_empty() { TableName::new(&table).map(Self::Table) } else { Err(unknown()) }
            }
            (name, keys) => {
                let wrong = || TableError::invalid("an entity must be addressed as (PartitionKey='…',RowKey='…')");
                let (partition, row) = pair(keys).ok_or_else(wrong)?;
                Ok(Self::Entity(TableName::new(name)?, EntityKey::new(&partition, &row)?))
            }
        }
    }

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
        let entity = |partition, row| Resource::Entity(table("tab"), EntityKey::new(partition, row).expect("valid"));
        let rows = [
            ("/a", Resource::Service),
            ("/a/", Resource::Service),
            ("/a/Tables", Resource::Tables),
            ("/a/Tables()", Resource::Tables),
            ("/a/Tables('tab')", Resource::Table(table("tab"))),
            ("/a/Tables(%27tab%27)", Resource::Table(table("tab"))),
            ("/a/tab", Resource::Entities(table("tab"))),
            ("/a/tab()", Resource::Entities(table("tab"))),
            ("/a/$batch", Resource::Batch),
            ("/a/tab(PartitionKey='p',RowKey='r')", entity("p", "r")),
            ("/a/tab(RowKey='r',PartitionKey='p')", entity("p", "r")),
            ("/a/tab(PartitionKey='',RowKey='')", entity("", "")),
            ("/a/tab(PartitionKey='o''b',RowKey='''')", entity("o'b", "'")),
            ("/a/tab(PartitionKey='a%2C%20(x,y)',RowKey=')%26+')", entity("a, (x,y)", ")&+")),
            ("/a/tab(PartitionKey='%25',RowKey='%C3%A9')", entity("%", "é")),
        ];
        for (path, address) in rows {
            assert_eq!(Resource::parse(path).expect("an address"), address, "{path}");
        }
    }

    #[test]
    fn rejects_other_paths() {
        let rows = [
            ("/a/tab/more", Code::InvalidUri),
            ("/a/tab(PartitionKey='p',RowKey='r'", Code::InvalidUri),
            ("/a/Tables('tab'x)", Code::InvalidUri),
            ("/a/%zz", Code::InvalidUri),
            ("/a/%FF", Code::InvalidUri),
            ("/a/tab('p')", Code::InvalidInput),
            ("/a/tab(PartitionKey='p',RowKey='r',)", Code::InvalidInput),
            ("/a/tab(PartitionKey='p')", Code::InvalidInput),
            ("/a/tab(PartitionKey='p',PartitionKey='r')", Code::InvalidInput),
            ("/a/tab(PartitionKey='p',RowKey='r'x)", Code::InvalidInput),
            ("/a/tab(PartitionKey='p',RowKey='%2F')", Code::InvalidInput),
            ("/a/tab(PartitionKey=p,RowKey='r')", Code::InvalidInput),
            ("/a/ta", Code::OutOfRangeInput),
            ("/a/1tab", Code::InvalidResourceName),
            ("/a/Tables('tables')", Code::InvalidResourceName),
        ];
        for (path, code) in rows {
            assert_eq!(Resource::parse(path).unwrap_err().code(), code, "{path}");
        }
    }
}
