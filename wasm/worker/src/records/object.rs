//! The Durable Object of a record, or of the names of a group.
#![allow(missing_docs, reason = "the macro generates functions for the runtime")]

use std::cell::Cell;
use std::panic::AssertUnwindSafe;

use ifmatch_core::record::Record;
use ifmatch_runtime::{Clock, SystemClock, nonce};
use worker::{
    DurableObject, Env, Error, Request, Response, Result, State, Storage, durable_object,
};

use super::namespace::RecordNamespace;
use super::register::RecordFate;
use super::sql::{GroupNames, RecordTable};
use super::wire::{self, Kept, NoteNumber, ObjectRequest, ObjectResponse, RecordEntry};
use super::{namespace, register};

/// The class of all objects.
#[durable_object(alarm)]
pub struct Records(AssertUnwindSafe<Instance>);

/// State of an object.
struct Instance {
    env: Env,
    storage: Storage,
    record: RecordTable,
    names: GroupNames,
    /// Number of deletions of the record since this object was loaded.
    forgotten: Cell<u64>,
    /// `true` if the alarm is known to be set.
    has_alarm: Cell<bool>,
}

impl DurableObject for Records {
    fn new(state: State, env: Env) -> Self {
        let storage = state.storage();
        let (record, names) = (
            RecordTable::new(storage.sql()),
            GroupNames::new(storage.sql()),
        );
        let (forgotten, has_alarm) = (Cell::new(0), Cell::new(false));
        Self(AssertUnwindSafe(Instance {
            env,
            storage,
            record,
            names,
            forgotten,
            has_alarm,
        }))
    }

    async fn fetch(&self, mut request: Request) -> Result<Response> {
        let answer = match wire::decode(&request.bytes().await?) {
            Ok(ask) => self.0.answer(ask).await?,
            Err(unreadable) => ObjectResponse::Unavailable(unreadable.to_string()),
        };
        Response::from_bytes(
            wire::encode(&answer).map_err(|error| Error::RustError(error.to_string()))?,
        )
    }

    async fn alarm(&self) -> Result<Response> {
        self.0.look().await?;
        Response::empty()
    }
}

impl Instance {
    async fn answer(&self, ask: ObjectRequest) -> Result<ObjectResponse> {
        match ask {
            ObjectRequest::Load => self.record.load().map(ObjectResponse::Record),
            ObjectRequest::Swap {
                key,
                expected,
                next,
                kept,
            } => self.swap(&key, expected, next, kept).await,
            ObjectRequest::Note { name } => self.note(&name),
            ObjectRequest::Noted { name } => self.names.noted(&name).map(ObjectResponse::Noted),
            ObjectRequest::Remove { name, note } => self.remove(&name, note).await,
            ObjectRequest::Names {
                prefix,
                after,
                limit,
            } => self
                .names
                .list(&prefix, after.as_deref(), limit)
                .map(ObjectResponse::Names),
        }
    }

    async fn swap(
        &self,
        key: &str,
        expected: u64,
        next: Option<RecordEntry>,
        kept: Kept,
    ) -> Result<ObjectResponse> {
        let forgotten = self.forgotten.get();
        let found = self.record.load()?;
        if revision(found.as_ref()) != expected {
            return Ok(ObjectResponse::Conflict(found));
        }
        match (found, next) {
            (None, None) => Ok(ObjectResponse::Done),
            (None, Some(entry)) => {
                if let Err(why) = self.list(key).await {
                    return Ok(ObjectResponse::Unavailable(why));
                }
                let found = self.record.load()?;
                // A deletion since may have removed the registered name.
                if found.is_some() || self.forgotten.get() != forgotten {
                    return Ok(ObjectResponse::Conflict(found));
                }
                self.store(key, entry, kept).await
            }
            (Some(_), Some(entry)) => self.store(key, entry, kept).await,
            (Some(_), None) => self.forget(key, expected).await,
        }
    }

    /// Replaces the record and ensures that an alarm checks it once it is old. The record and the alarm are written
    /// atomically.
    async fn store(&self, key: &str, entry: RecordEntry, kept: Kept) -> Result<ObjectResponse> {
        self.record.store(key, entry, kept)?;
        if kept != Kept::Always
            && !self.has_alarm.replace(true)
            && self.storage.get_alarm().await?.is_none()
        {
            self.storage.set_alarm(register::LOOK).await?;
        }
        Ok(ObjectResponse::Done)
    }

    /// Deletes the record if it is old and no longer needed.
    async fn look(&self) -> Result<()> {
        self.has_alarm.set(false);
        let (Some((key, kept)), Some(entry)) = (self.record.kept()?, self.record.load()?) else {
            return Ok(());
        };
        let record =
            Record::decode(&entry.record).map_err(|error| Error::RustError(error.to_string()))?;
        let is_there = match register::fate(&record, kept, SystemClock.now()) {
            RecordFate::Stays => return Ok(()),
            RecordFate::LookAgain => true,
            RecordFate::Forgotten => {
                self.forget(&key, entry.revision).await? != ObjectResponse::Done
            }
        };
        if is_there && !self.has_alarm.replace(true) {
            self.storage.set_alarm(register::LOOK).await?;
        }
        Ok(())
    }

    /// Deletes the record along with the database if it still has the expected revision, and then its name.
    async fn forget(&self, key: &str, expected: u64) -> Result<ObjectResponse> {
        let (namespace, names) = (
            RecordNamespace::open(&self.env)?,
            register::names(register::group(key)),
        );
        let noted = match namespace::again(
            &namespace,
            &names,
            &ObjectRequest::Noted {
                name: key.to_owned(),
            },
        )
        .await
        {
            Ok(ObjectResponse::Noted(noted)) => noted,
            Ok(other) => {
                return Ok(ObjectResponse::Unavailable(format!(
                    "{other:?} is no answer"
                )));
            }
            Err(trouble) => return Ok(ObjectResponse::Unavailable(trouble.to_string())),
        };
        let found = self.record.load()?;
        if revision(found.as_ref()) != expected {
            return Ok(ObjectResponse::Conflict(found));
        }
        self.forgotten.set(self.forgotten.get() + 1);
        self.has_alarm.set(false);
        self.record.deleted();
        self.storage.delete_all().await?;
        if let Some(note) = noted {
            // A remaining name does no harm.
            let removed = namespace::again(
                &namespace,
                &names,
                &ObjectRequest::Remove {
                    name: key.to_owned(),
                    note,
                },
            )
            .await;
            if let Err(trouble) = removed {
                tracing::info!(%trouble, "the name of a deleted record remains registered");
            }
        }
        Ok(ObjectResponse::Done)
    }

    /// Registers the name of a new record.
    async fn list(&self, key: &str) -> Result<(), String> {
        let namespace = RecordNamespace::open(&self.env).map_err(|error| error.to_string())?;
        let names = register::names(register::group(key));
        match namespace::again(
            &namespace,
            &names,
            &ObjectRequest::Note {
                name: key.to_owned(),
            },
        )
        .await
        {
            Ok(ObjectResponse::Done) => Ok(()),
            Ok(other) => Err(format!("{other:?} is no answer")),
            Err(trouble) => Err(trouble.to_string()),
        }
    }

    fn note(&self, name: &str) -> Result<ObjectResponse> {
        let note = nonce().map_err(|error| Error::RustError(error.to_string()))?;
        self.names.note(name, note).map(|()| ObjectResponse::Done)
    }

    /// Removes a name, and deletes the database along with the last name.
    async fn remove(&self, name: &str, note: NoteNumber) -> Result<ObjectResponse> {
        if self.names.remove(name, note)? {
            self.names.deleted();
            self.storage.delete_all().await?;
        }
        Ok(ObjectResponse::Done)
    }
}

fn revision(entry: Option<&RecordEntry>) -> u64 {
    entry.map_or(0, |entry| entry.revision)
}
