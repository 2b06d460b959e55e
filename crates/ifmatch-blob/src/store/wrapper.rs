//! Stores around other stores.

use async_trait::async_trait;

use super::{
    AppendBlock, Appended, BlobEntry, BlobStore, ContainerEntry, ContainerInfo, Delete,
    LeaseRequest, Leased, ListQuery, Opened, Page, Peek, Put, Reading, SetHeaders, StoreError,
    Update, Updated, Written,
};
use crate::headers::BlobHeaders;
use crate::name::{BlobPath, ContainerName};

/// Defines the trait and its blanket implementation from the methods of a store.
macro_rules! wrapper {
    ($(#[$doc:meta])* $(fn $method:ident($($name:ident: $type:ty),*) -> $output:ty;)*) => {
        $(#[$doc])*
        #[async_trait]
        pub trait Wrapper: Send + Sync + 'static {
            /// Returns the store that gets the calls.
            fn inner(&self) -> &dyn BlobStore;

            /// Defaults to `None`, so no response passes by an [`open`](Self::open) that is overridden.
            fn peek(&self) -> Option<&dyn Peek> {
                None
            }

            $(
                /// Defaults to the method of the inner store.
                async fn $method(&self, $($name: $type),*) -> Result<$output, StoreError> {
                    self.inner().$method($($name),*).await
                }
            )*
        }

        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<W: Wrapper> BlobStore for W {
            fn peek(&self) -> Option<&dyn Peek> {
                Wrapper::peek(self)
            }

            fn has_index(&self) -> bool {
                Wrapper::peek(self).is_some()
            }

            $(
                async fn $method(&self, $($name: $type),*) -> Result<$output, StoreError> {
                    Wrapper::$method(self, $($name),*).await
                }
            )*
        }
    };
}

wrapper! {
    /// A [`BlobStore`] that passes calls on to another store, except those that it overrides.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use async_trait::async_trait;
    /// use ifmatch_blob::BlobStore;
    /// use ifmatch_blob::name::BlobPath;
    /// use ifmatch_blob::store::{Put, StoreError, StoreErrorKind, Wrapper, Written};
    ///
    /// struct ReadOnly(Arc<dyn BlobStore>);
    ///
    /// #[async_trait]
    /// impl Wrapper for ReadOnly {
    ///     fn inner(&self) -> &dyn BlobStore {
    ///         &*self.0
    ///     }
    ///
    ///     async fn put(&self, _: &BlobPath, _: Put) -> Result<Written, StoreError> {
    ///         Err(StoreError::new(StoreErrorKind::Unsupported, "the store is read-only"))
    ///     }
    /// }
    ///
    /// fn read_only(store: Arc<dyn BlobStore>) -> Arc<dyn BlobStore> {
    ///     Arc::new(ReadOnly(store))
    /// }
    /// ```
    fn open(blob: &BlobPath, reading: Reading) -> Option<Opened>;
    fn put(blob: &BlobPath, put: Put) -> Written;
    fn append(blob: &BlobPath, append: AppendBlock) -> Appended;
    fn update(blob: &BlobPath, update: Update) -> Updated;
    fn delete(blob: &BlobPath, delete: Delete) -> ();
    fn list(container: &ContainerName, query: &ListQuery) -> Option<Page<BlobEntry>>;
    fn set_headers(blob: &BlobPath, set: SetHeaders) -> Written;
    fn lease(blob: &BlobPath, request: LeaseRequest) -> Leased;
    fn create_container(container: &ContainerName, headers: BlobHeaders) -> ContainerInfo;
    fn container(container: &ContainerName) -> Option<ContainerInfo>;
    fn set_container(container: &ContainerName, set: SetHeaders) -> ContainerInfo;
    fn lease_container(container: &ContainerName, request: LeaseRequest) -> Leased;
    fn delete_container(container: &ContainerName, delete: Delete) -> ();
    fn delete_empty_container(container: &ContainerName, delete: Delete) -> ();
    fn containers(query: &ListQuery) -> Page<ContainerEntry>;
}
