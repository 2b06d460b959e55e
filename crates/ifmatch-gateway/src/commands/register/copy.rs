//! Copying of all records from one register to another.

use std::sync::Arc;

use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Key, Register, RegisterError, Scan, Swap};

use crate::error::Error;

/// Number of records in a page.
const PAGE: usize = 500;
/// Number of records between two reports.
const REPORT: u64 = 20_000;

/// Copies all records, verifies the copy, and returns their number. Calls `report` from time to time.
///
/// # Errors
/// Fails if either register does, if the target has another version of a record or other records, or if the source
/// changes meanwhile. Repeat the copy to continue.
pub(super) async fn copy(
    from: &Arc<dyn Register>,
    to: &Arc<dyn Register>,
    report: impl Fn(u64) -> Result<(), Error>,
) -> Result<u64, Error> {
    let mut copied = 0;
    let mut pages = Pages::of(from);
    while let Some(page) = pages.next().await? {
        for (key, record) in page {
            write(to, &key, &record).await?;
            copied += 1;
            if copied % REPORT == 0 {
                report(copied)?;
            }
        }
    }
    verify(from, to).await?;
    Ok(copied)
}

async fn write(to: &Arc<dyn Register>, key: &Key, record: &Record) -> Result<(), Error> {
    match to.compare_and_swap(key, Revision::NONE, Some(record)).await.map_err(|error| failed(&error))? {
        Swap::Done => Ok(()),
        // By an earlier, interrupted copy.
        Swap::Conflict(Some(found)) if found == *record => Ok(()),
        Swap::Conflict(_) => Err(Error::runtime(format!(
            "the target has another version of the record {key}: copy to an empty register"
        ))),
    }
}

/// Compares both registers, page by page.
async fn verify(from: &Arc<dyn Register>, to: &Arc<dyn Register>) -> Result<(), Error> {
    let (mut source, mut target) = (Pages::of(from), Pages::of(to));
    loop {
        let (expected, found) = (source.next().await?, target.next().await?);
        if expected != found {
            return Err(Error::runtime(
                "the registers differ after the copy: a gateway has changed one of them meanwhile, or the target was not \
                 empty; stop all gateways, and copy to an empty register",
            ));
        }
        if expected.is_none() {
            return Ok(());
        }
    }
}

/// The records of a register, page by page.
struct Pages<'a> {
    register: &'a Arc<dyn Register>,
    after: Option<Key>,
}

impl<'a> Pages<'a> {
    fn of(register: &'a Arc<dyn Register>) -> Self {
        Self { register, after: None }
    }

    async fn next(&mut self) -> Result<Option<Vec<(Key, Record)>>, Error> {
        let scan = Scan { prefix: "", after: self.after.as_ref().map(Key::as_str), limit: PAGE };
        let page = self.register.scan(&scan).await.map_err(|error| failed(&error))?;
        self.after = page.last().map(|(key, _)| key.clone());
        Ok((!page.is_empty()).then_some(page))
    }
}

fn failed(error: &RegisterError) -> Error {
    Error::runtime(format!("the copy is incomplete, repeat it to continue: {error}"))
}

#[cfg(test)]
mod tests {
    use ifmatch_core::command::{Command, Content, Write};
    use ifmatch_core::digest::ContentHash;
    use ifmatch_core::precondition::Preconditions;
    use ifmatch_register::MemoryRegister;
    use ifmatch_runtime::{Clock, SystemClock, nonce};

    use super::*;

    fn empty() -> Arc<dyn Register> {
        Arc::new(MemoryRegister::unbounded())
    }

    fn after(record: &Record) -> Record {
        let content = Content::Hashed { hash: ContentHash::of(b""), payload: b"payload".to_vec().into() };
        let write = Write::new(&http::Method::PUT, &Preconditions::NONE, content, nonce().unwrap());
        record.apply(&Command::Write(write), SystemClock.now()).next.unwrap()
    }

    async fn filled(records: usize) -> Arc<dyn Register> {
        let register = empty();
        for number in 0..records {
            let key = Key::new(format!("key/{number}")).unwrap();
            write(&register, &key, &after(&Record::unknown())).await.unwrap();
        }
        register
    }

    #[tokio::test]
    async fn all_records_arrive_unchanged() {
        let (source, target) = (filled(1_234).await, empty());
        assert_eq!(copy(&source, &target, |_| Ok(())).await.unwrap(), 1_234);
        verify(&source, &target).await.unwrap();
    }

    #[tokio::test]
    async fn an_interrupted_copy_continues_and_a_used_target_is_refused() {
        let source = filled(100).await;
        let target = empty();
        let key = Key::new("key/50").unwrap();
        let record = source.load(&key).await.unwrap().unwrap();
        write(&target, &key, &record).await.unwrap();
        assert_eq!(copy(&source, &target, |_| Ok(())).await.unwrap(), 100);

        let newer = after(&record);
        assert_eq!(target.compare_and_swap(&key, record.revision(), Some(&newer)).await.unwrap(), Swap::Done);
        let error = copy(&source, &target, |_| Ok(())).await.unwrap_err();
        assert!(error.to_string().contains("another version of the record key/50"), "{error}");
        let other = filled(101).await;
        let error = copy(&empty(), &other, |_| Ok(())).await.unwrap_err();
        assert!(error.to_string().contains("differ after the copy"), "{error}");
    }
}
