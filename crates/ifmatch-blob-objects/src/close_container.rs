//! Deletion of a container on the condition that it is empty.
//!
//! The deleter closes the container: a swap marks its record, and no write begins any more. Reads go on. The deleter waits for the
//! writes that may have begun before, and then lists the objects. If there are none, a second swap begins the deletion
//! ([`delete_container`](super::delete_container)), which nothing can undo. Otherwise it removes the mark. A turn that ends in
//! between opens the container again, whichever process notices it.
//!
//! # Interleavings
//!
//! ```text
//!   write                                     deleter
//!   gets its permit, finds no mark
//!                                             finds no object, closes the container
//!   sends the object                          waits for the permit
//!   is acknowledged                           finds the object, opens the container: it is not empty
//!
//!   write                                     deleter
//!                                             closes the container
//!   gets its permit, and relies on an         waits as long as answers are remembered, then for the permits of that time
//!   earlier answer: finds no mark
//!   sends the object, is acknowledged         finds the object, opens the container
//!
//!   write                                     deleter
//!                                             closes the container
//!   gets its permit, finds the mark:          does not wait for this permit
//!   is refused, and changes nothing           lists no object, and begins the deletion
//!
//!   read                                      deleter
//!                                             closes the container
//!   gets the object of a write that was       finds the object, opens the container
//!   acknowledged before
//!
//!   deleter                                   another request
//!   closes the container, lists no object
//!   stops, for longer than its turn           opens the container, writes an object
//!   begins the deletion: the swap fails,
//!   since the record has changed
//!
//!   deleter                                   another request, in any process
//!   closes the container, and crashes         is refused until the end of the turn, then opens the container
//!   begins the deletion, and crashes          finds no container, and completes the deletion after the turn
//! ```

use ifmatch_core::command::Outcome;
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::Record;

use super::delete_container::Turn;
use super::failure::refused;
use super::incarnation::Mark;
use super::shared::Shared;
use super::write::contended;
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::store::{Delete, StoreError, StoreErrorKind};

impl Shared {
    /// Reopens a closed container once its deleter's turn has ended, unless another request did so first.
    pub(super) async fn reopen(&self, container: &ContainerName, record: &Record) -> Result<(), StoreError> {
        match self.take_turn(container, record, Mark::Closing, None).await? {
            Some(turn) => turn.open().await,
            None => Ok(()),
        }
    }
}

impl Turn<'_> {
    /// Deletes the closed container if it is empty, or opens it again. Stops waiting for a write in flight at `give_up`.
    pub(super) async fn delete_if_empty(mut self, delete: &Delete, give_up: Timestamp) -> Result<(), StoreError> {
        match self.begin_deletion(delete.lease, give_up).await {
            Ok(()) => self.drain().await,
            Err(error) => {
                let container = self.container;
                if let Err(error) = self.open().await {
                    tracing::warn!(%container, %error, "a container that is not deleted takes no writes until its deleter's turn ends");
                }
                Err(error)
            }
        }
    }

    /// Turns the mark into that of a deletion, if the container is empty.
    async fn begin_deletion(&mut self, lease: LeaseUse, give_up: Timestamp) -> Result<(), StoreError> {
        self.wait_for_writers(Some(give_up)).await?;
        self.shared.check_owner().await?;
        self.keep().await?;
        let listing = self.shared.has_blobs(self.container, self.home.members());
        if self.in_turn(listing).await.map_err(|_elapsed| contended())?? {
            return Err(StoreErrorKind::ContainerNotEmpty.into());
        }
        match self.mark(Mark::Deleting, &Preconditions::NONE, lease).await? {
            Outcome::Written(_) => Ok(()),
            outcome => Err(refused(outcome, self.shared.driver.now()).of_container()),
        }
    }

    /// Removes the mark.
    async fn open(mut self) -> Result<(), StoreError> {
        let content = self.payload.clone().content()?;
        self.replace(content).await
    }
}
