//! Lease operations on blobs and containers: one command each, decided by the record.

use ifmatch_core::command::{Authority, Command, LeaseOperation};
use ifmatch_register::Key;

use super::Inner;
use super::key;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::records::{leased, nonce, of_driver};
use ifmatch_blob::store::{LeaseRequest, Leased, StoreError};

impl Inner {
    pub(super) async fn lease(&self, blob: &BlobPath, request: LeaseRequest) -> Result<Leased, StoreError> {
        let incarnation = self.incarnation(&blob.container).await?;
        self.operate(&key::of_blob(&blob.container, incarnation, &blob.name)?, request).await
    }

    pub(super) async fn lease_container(
        &self,
        container: &ContainerName,
        request: LeaseRequest,
    ) -> Result<Leased, StoreError> {
        self.operate(&key::of_container(container)?, request).await.map_err(StoreError::of_container)
    }

    async fn operate(&self, key: &Key, request: LeaseRequest) -> Result<Leased, StoreError> {
        let operation = LeaseOperation::new(request.action, &request.preconditions, nonce()?)
            .with_authority(Authority::Register)
            .with_request(request.request.map(|key| key.request(None)));
        let applied = self.driver.apply_in_turn(key, &Command::Lease(operation)).await.map_err(of_driver)?;
        leased(applied, self.driver.now())
    }
}
