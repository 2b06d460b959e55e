//! The rights of requests.

use ifmatch_azure::auth::{AccessGrant, AuthError, ResourceLevel, SharedAccessError};

use crate::entity::key::EntityKey;
use crate::error::TableError;
use crate::storage::tables::TableName;

/// A request's rights.
#[derive(Clone, Debug)]
pub(crate) struct TableAccess(pub(crate) AccessGrant);

impl TableAccess {
    /// Permits operations on the service that need any of these permissions.
    pub(crate) fn to_service(&self, any_of: &str) -> Result<(), TableError> {
        self.check(ResourceLevel::Service, any_of)
    }

    /// Permits operations on tables that need any of these permissions.
    pub(crate) fn to_tables(&self, any_of: &str) -> Result<(), TableError> {
        self.check(ResourceLevel::Container, any_of)
    }

    /// Permits operations on entities that need any of these permissions.
    pub(crate) fn to_entities(&self, any_of: &str) -> Result<(), TableError> {
        self.check(ResourceLevel::Object, any_of)
    }

    /// Permits operations on this entity.
    pub(crate) fn to_entity(&self, table: &TableName, key: &EntityKey) -> Result<(), TableError> {
        if self.covers(table, key) {
            Ok(())
        } else {
            Err(AuthError::from(SharedAccessError::Range).into())
        }
    }

    /// Returns `true` if the entity is in the signed range.
    pub(crate) fn covers(&self, table: &TableName, key: &EntityKey) -> bool {
        match &self.0 {
            AccessGrant::Everything => true,
            AccessGrant::SharedAccess(access) => {
                access.covers(table.as_str(), &key.partition, &key.row)
            }
        }
    }

    /// Permits operations at this level that need any of these permissions.
    fn check(&self, level: ResourceLevel, any_of: &str) -> Result<(), TableError> {
        match &self.0 {
            AccessGrant::Everything => Ok(()),
            AccessGrant::SharedAccess(access) => {
                Ok(access.permit(level, any_of).map_err(AuthError::from)?)
            }
        }
    }
}
