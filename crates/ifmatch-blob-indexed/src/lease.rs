//! Leases of blobs and containers, which their records keep.

use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::records::{leased, nonce};
use ifmatch_blob::store::{LeaseRequest, Leased, StoreError};
use ifmatch_register::Key;

use super::swap::Edit;
use super::{Inner, key};

impl Inner {
    pub(super) async fn lease(
        &self,
        blob: &BlobPath,
        request: LeaseRequest,
    ) -> Result<Leased, StoreError> {
        let incarnation = self.incarnation(&blob.container).await?;
        let leased = self
            .operate(
                &key::of_blob(&blob.container, incarnation, &blob.name)?,
                request,
            )
            .await?;
        self.confirm(&blob.container, incarnation).await?;
        Ok(leased)
    }

    pub(super) async fn lease_container(
        &self,
        container: &ContainerName,
        request: LeaseRequest,
    ) -> Result<Leased, StoreError> {
        self.operate(&key::of_container(container)?, request)
            .await
            .map_err(StoreError::of_container)
    }

    async fn operate(&self, key: &Key, request: LeaseRequest) -> Result<Leased, StoreError> {
        let applied = self.change(key, Edit::Lease(request, nonce()?)).await?;
        leased(applied, self.driver.now())
    }
}
