//! The Durable Object: a record, or the names of a group.
#![allow(missing_docs, reason = "the macro writes functions for the runtime")]

use std::cell::Cell;
use std::panic::AssertUnwindSafe;

use ifmatch_store::nonce;
use worker::{DurableObject, Env, Error, Request, Response, Result, State, durable_object};

use super::table::{Names, Records as Table};
use super::wire::{self, Answer, Ask, Entry};
use super::{ask, place};
use crate::bindings;

/// The class of all objects.
#[durable_object(fetch)]
pub struct Records(AssertUnwindSafe<Object>);

/// What an object has.
struct Object {
    env: Env,
    record: Table,
    names: Names,
    /// How often the record was forgotten since this object is in memory.
    forgotten: Cell<u64>,
}

impl DurableObject for Records {
    fn new(state: State, env: Env) -> Self {
        let sql = state.storage().sql();
        let (record, names) = (Table::new(sql.clone()), Names::new(sql));
        Self(AssertUnwindSafe(Object { env, record, names, forgotten: Cell::new(0) }))
    }

    async fn fetch(&self, mut request: Request) -> Result<Response> {
        let answer = match wire::decode(&request.bytes().await?) {
            Ok(ask) => self.0.answer(ask).await?,
            Err(unreadable) => Answer::Unavailable(unreadable.to_string()),
        };
        Response::from_bytes(wire::encode(&answer).map_err(|error| Error::RustError(error.to_string()))?)
    }
}

impl Object {
    async fn answer(&self, ask: Ask) -> Result<Answer> {
        match ask {
            Ask::Load => self.record.load().map(Answer::Record),
            Ask::Swap { key, expected, next } => self.swap(&key, expected, next).await,
            Ask::Note { name, note } => self.names.note(&name, note).map(|()| Answer::Done),
            Ask::Noted { name } => self.names.noted(&name).map(Answer::Noted),
            Ask::Remove { name, note } => self.names.remove(&name, note).map(|()| Answer::Done),
            Ask::Names { prefix, after, limit } => self.names.list(&prefix, after.as_deref(), limit).map(Answer::Names),
        }
    }

    async fn swap(&self, key: &str, expected: u64, next: Option<Entry>) -> Result<Answer> {
        let forgotten = self.forgotten.get();
        let found = self.record.load()?;
        if revision(found.as_ref()) != expected {
            return Ok(Answer::Conflict(found));
        }
        match (found, next) {
            (None, None) => Ok(Answer::Done),
            (None, Some(entry)) => {
                if let Err(why) = self.note(key).await {
                    return Ok(Answer::Unavailable(why));
                }
                let found = self.record.load()?;
                // Whoever forgot the record since may have removed the name that was noted.
                if found.is_some() || self.forgotten.get() != forgotten {
                    return Ok(Answer::Conflict(found));
                }
                self.record.store(key, entry).map(|()| Answer::Done)
            }
            (Some(_), Some(entry)) => self.record.store(key, entry).map(|()| Answer::Done),
            (Some(_), None) => self.forget(key, expected).await,
        }
    }

    async fn forget(&self, key: &str, expected: u64) -> Result<Answer> {
        let (objects, names) = (bindings::records(&self.env)?, place::names(place::group(key)));
        let noted = match ask::again(&objects, &names, &Ask::Noted { name: key.to_owned() }).await {
            Ok(Answer::Noted(noted)) => noted,
            Ok(other) => return Ok(Answer::Unavailable(format!("{other:?} is no answer"))),
            Err(trouble) => return Ok(Answer::Unavailable(trouble.to_string())),
        };
        let found = self.record.load()?;
        if revision(found.as_ref()) != expected {
            return Ok(Answer::Conflict(found));
        }
        self.record.remove()?;
        self.forgotten.set(self.forgotten.get() + 1);
        if let Some(note) = noted {
            // A name that stays does no harm.
            let removed = ask::again(&objects, &names, &Ask::Remove { name: key.to_owned(), note }).await;
            if let Err(trouble) = removed {
                tracing::info!(%trouble, "a name stays noted whose record is gone");
            }
        }
        Ok(Answer::Done)
    }

    /// Notes the name of a record that comes into being.
    async fn note(&self, key: &str) -> std::result::Result<(), String> {
        let objects = bindings::records(&self.env).map_err(|error| error.to_string())?;
        let note = nonce().map_err(|error| error.to_string())?;
        let names = place::names(place::group(key));
        match ask::again(&objects, &names, &Ask::Note { name: key.to_owned(), note }).await {
            Ok(Answer::Done) => Ok(()),
            Ok(other) => Err(format!("{other:?} is no answer")),
            Err(trouble) => Err(trouble.to_string()),
        }
    }
}

fn revision(entry: Option<&Entry>) -> u64 {
    entry.map_or(0, |entry| entry.revision)
}
