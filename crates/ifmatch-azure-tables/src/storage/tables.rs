//! Tables: their names and identities.

use std::fmt;

use serde_json::{Value as Json, json};

use ifmatch_core::precondition::Preconditions;

use crate::error::{ErrorCode, TableError};
use crate::storage::{bytes, is_refused, new_id, put};
use ifmatch_blob::accounts::Account;
use ifmatch_blob::name::{BlobName, BlobPath, ContainerName, InvalidName};
use ifmatch_blob::store::{BlobStore, Delete, Reading, StoreError, StoreErrorKind};

/// The name of a table: 3 to 63 ASCII letters and digits, beginning with a letter. Names keep their case, but are
/// compared without it.
#[derive(Clone, Debug, Eq)]
pub(crate) struct TableName(Box<str>);

impl TableName {
    /// Creates a name.
    ///
    /// # Errors
    /// The name is too short or too long, begins with a digit, contains other characters, or is `tables`.
    pub(crate) fn new(text: &str) -> Result<Self, TableError> {
        if !text.bytes().all(|byte| byte.is_ascii_alphanumeric())
            || text.starts_with(|char: char| char.is_ascii_digit())
        {
            return Err(TableError::new(ErrorCode::InvalidResourceName));
        }
        if !(3..=63).contains(&text.len()) {
            return Err(TableError::new(ErrorCode::OutOfRangeInput));
        }
        if text.eq_ignore_ascii_case("tables") {
            return Err(TableError::new(ErrorCode::InvalidResourceName));
        }
        Ok(Self(text.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl PartialEq for TableName {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An existing table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    /// The name, in the case used on creation.
    pub(crate) name: TableName,
    /// Drawn at random, so never used by another table.
    pub(crate) identity: Box<str>,
}

/// The internal containers of an account's tables and their entities.
#[derive(Clone, Debug)]
pub(crate) struct AccountContainers {
    pub(crate) tables: ContainerName,
    pub(crate) entities: ContainerName,
    /// Position of the garbage collection.
    pub(crate) sweeps: ContainerName,
}

impl AccountContainers {
    /// Returns the containers of an account, which no request can name.
    ///
    /// # Errors
    /// The account's name is too long, which can't happen for valid accounts.
    pub(crate) fn of(account: &Account) -> Result<Self, InvalidName> {
        let container = |what| ContainerName::internal(&format!("{what}.{}", account.name()));
        Ok(Self {
            tables: container("tables")?,
            entities: container("entities")?,
            sweeps: container("sweeps")?,
        })
    }

    /// Returns the blob of a table.
    fn blob(&self, name: &TableName) -> Result<BlobPath, StoreError> {
        let name = BlobName::new(&name.as_str().to_ascii_lowercase());
        let name = name.map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))?;
        Ok(BlobPath {
            container: self.tables.clone(),
            name,
        })
    }

    /// Finds a table by name.
    pub(crate) async fn find(
        &self,
        store: &dyn BlobStore,
        name: &TableName,
    ) -> Result<Option<Table>, StoreError> {
        self.read(store, &self.blob(name)?).await
    }

    /// Reads the table stored in a blob.
    pub(crate) async fn read(
        &self,
        store: &dyn BlobStore,
        blob: &BlobPath,
    ) -> Result<Option<Table>, StoreError> {
        let Some(opened) = store.open(blob, Reading::WHOLE.without_lease()).await? else {
            return Ok(None);
        };
        Table::decode(&bytes(opened).await?).map(Some)
    }

    /// Creates a table. Of several concurrent creations one succeeds.
    pub(crate) async fn create(
        &self,
        store: &dyn BlobStore,
        name: &TableName,
    ) -> Result<Table, TableError> {
        let table = Table {
            name: name.clone(),
            identity: new_id()?.into(),
        };
        let put = put(table.encode(), Preconditions::absent());
        match store.put(&self.blob(name)?, put).await {
            Ok(_) => Ok(table),
            Err(error) if is_refused(&error) => Err(TableError::new(ErrorCode::TableAlreadyExists)),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes a table, which makes its entities unreachable.
    pub(crate) async fn delete(
        &self,
        store: &dyn BlobStore,
        name: &TableName,
    ) -> Result<(), TableError> {
        match store.delete(&self.blob(name)?, Delete::default()).await {
            Ok(()) => Ok(()),
            Err(error) if *error.kind() == StoreErrorKind::NotFound => {
                Err(TableError::new(ErrorCode::ResourceNotFound))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Version of the stored format.
const VERSION: u64 = 1;

impl Table {
    fn encode(&self) -> String {
        json!({ "version": VERSION, "name": self.name.as_str(), "identity": &*self.identity })
            .to_string()
    }

    fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        let stored: Option<Json> = serde_json::from_slice(bytes).ok();
        let table = stored
            .filter(|stored| stored["version"] == VERSION)
            .and_then(|stored| {
                let name = TableName::new(stored["name"].as_str()?).ok()?;
                Some(Self {
                    name,
                    identity: stored["identity"].as_str()?.into(),
                })
            });
        table.ok_or_else(|| {
            StoreError::new(
                StoreErrorKind::Unreadable,
                "the table is damaged, or was written by a newer release",
            )
        })
    }
}
