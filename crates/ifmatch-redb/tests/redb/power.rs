//! Loss of power, torn writes and single disk failures: every acknowledged or observed change survives.

use std::collections::{BTreeMap, BTreeSet};

use ifmatch_redb::{DatabaseStorage, OpenErrorKind, RedbRegister};
use ifmatch_register::{Driver, DriverError, RegisterErrorKind, Scan};

use crate::platter::{Call, Plain, Platter};
use crate::{get, key, set};

/// Names far enough apart to be on separate pages.
const NAMES: [&str; 4] = ["010", "060", "110", "140"];

fn open(platter: &Platter) -> Driver {
    Driver::new(RedbRegister::open_in(platter.clone()).unwrap()).assume_absent()
}

/// Creates a database large enough that a write leaves most pages unchanged.
async fn filled(platter: &Platter) -> (Driver, Known) {
    let driver = open(platter);
    let mut known = Known::default();
    let mut writes = tokio::task::JoinSet::new();
    for at in 0..150 {
        let name = format!("{at:03}");
        known.0.insert(
            name.clone(),
            Number {
                sure: Some(1),
                tried: 1,
                ..Number::default()
            },
        );
        let driver = driver.clone();
        writes.spawn(async move { set(&driver, &name, 1).await });
    }
    while let Some(written) = writes.join_next().await {
        written.unwrap().unwrap();
    }
    (driver, known)
}

fn kind(error: &DriverError) -> RegisterErrorKind {
    match error {
        DriverError::Register(error) => error.kind(),
        other => panic!("expected a failure of the register, got {other:?}"),
    }
}

/// Values known to have been written under each name.
#[derive(Debug, Default)]
struct Known(BTreeMap<String, Number>);

#[derive(Debug, Default)]
struct Number {
    /// Last value that was acknowledged or read.
    sure: Option<u64>,
    /// Later values with an unknown result.
    possible: BTreeSet<u64>,
    tried: u64,
}

impl Known {
    async fn set(&mut self, driver: &Driver, name: &str) -> Result<(), DriverError> {
        let number = self.0.entry(name.to_owned()).or_default();
        number.tried += 1;
        let written = set(driver, name, number.tried).await;
        match &written {
            Ok(()) => {
                *number = Number {
                    sure: Some(number.tried),
                    tried: number.tried,
                    ..Number::default()
                }
            }
            Err(error) if kind(error) == RegisterErrorKind::Ambiguous => {
                number.possible.insert(number.tried);
            }
            // The change didn't happen and never will.
            Err(_) => {}
        }
        written
    }

    async fn get(&mut self, driver: &Driver, name: &str) -> Result<(), DriverError> {
        let number = self.0.entry(name.to_owned()).or_default();
        let found = get(driver, name).await?;
        let is_possible =
            found == number.sure || found.is_some_and(|found| number.possible.contains(&found));
        assert!(
            is_possible,
            "{name}: found {found:?}, but known is {number:?}"
        );
        *number = Number {
            sure: found,
            tried: number.tried,
            ..Number::default()
        };
        Ok(())
    }

    async fn check(&mut self, driver: &Driver) {
        let names: Vec<String> = self.0.keys().cloned().collect();
        for name in names {
            self.get(driver, &name).await.unwrap();
        }
    }
}

/// Event between the failure and the loss of power.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Nothing,
    Reads,
    Writes,
    Restart,
}

/// Fails each disk call once, at each position in a sequence of writes.
#[tokio::test(flavor = "multi_thread")]
async fn one_failure_loses_no_acknowledged_write_and_no_database() {
    for call in Call::ALL {
        let seeds = if call == Call::Sync { 6 } else { 1 };
        for (number, seed) in (1..=5).flat_map(|number| (0..seeds).map(move |seed| (number, seed)))
        {
            for meanwhile in [
                Meanwhile::Nothing,
                Meanwhile::Reads,
                Meanwhile::Writes,
                Meanwhile::Restart,
            ] {
                let platter = Platter::new(seed * 100 + number as u64);
                let (mut driver, mut known) = filled(&platter).await;
                platter.fail(call, number);
                for name in NAMES {
                    // A failure is reported, or the interrupted operation is repeated.
                    let _ = known.set(&driver, name).await;
                }
                platter.cancel_failure();
                match meanwhile {
                    Meanwhile::Nothing => {}
                    Meanwhile::Reads => known.check(&driver).await,
                    Meanwhile::Writes => known
                        .set(&driver, "070")
                        .await
                        .expect("one failure is not two"),
                    Meanwhile::Restart => {
                        drop(driver);
                        driver = open(&platter);
                        known.check(&driver).await;
                    }
                }
                platter.lose_power();
                drop(driver);
                known.check(&open(&platter)).await;
            }
        }
    }
}

/// Runs writes, reads, failures, process exits and power losses in random order.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_was_acknowledged_or_read_ever_disappears() {
    for seed in 0..16 {
        let platter = Platter::new(seed);
        let (mut driver, mut known) = filled(&platter).await;
        for _ in 0..40 {
            if platter.draw(3) == 0 {
                platter.fail(
                    Call::ALL[platter.draw(Call::ALL.len())],
                    1 + platter.draw(5),
                );
            }
            let name = NAMES[platter.draw(4)];
            match platter.draw(8) {
                0 => platter.kill(),
                1 => platter.lose_power(),
                2 => {}
                3 | 4 => {
                    if known.get(&driver, name).await.is_err() {
                        assert!(
                            platter.take_failed(),
                            "seed {seed}: a read fails without a cause"
                        );
                    }
                    continue;
                }
                _ => {
                    if known.set(&driver, name).await.is_err() {
                        assert!(
                            platter.take_failed(),
                            "seed {seed}: a write fails without a cause"
                        );
                    }
                    continue;
                }
            }
            drop(driver);
            driver = match RedbRegister::open_in(platter.clone()) {
                Ok(register) => Driver::new(register).assume_absent(),
                Err(error) => {
                    assert!(platter.take_failed(), "seed {seed}: {error}");
                    open(&platter)
                }
            };
        }
        platter.cancel_failure();
        known.check(&driver).await;
        platter.lose_power();
        drop(driver);
        known.check(&open(&platter)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_fails_writes_and_shows_durable_records() {
    let platter = Platter::new(1);
    let driver = open(&platter);
    let mut known = Known::default();
    known.set(&driver, "before").await.unwrap();
    known.set(&driver, "during").await.unwrap();
    platter.set_full(true);
    for _ in 0..3 {
        assert!(known.set(&driver, "during").await.is_err());
        assert!(
            !platter.has_leftover(),
            "an incomplete copy frees its space"
        );
        assert!(
            platter.has_failed().unwrap(),
            "a process that starts now must know that the commit was refused"
        );
        assert_eq!(get(&driver, "before").await.unwrap(), Some(1));
        let scan = Scan {
            prefix: "before",
            after: None,
            limit: 100,
        };
        assert_eq!(driver.register().scan(&scan).await.unwrap().len(), 1);
    }
    platter.set_full(false);
    known.get(&driver, "during").await.unwrap();
    known.set(&driver, "after").await.unwrap();
    assert!(
        !platter.has_failed().unwrap(),
        "later commits are acknowledged ones"
    );
    known.check(&driver).await;
    assert_eq!(
        driver
            .register()
            .scan(&Scan {
                limit: 100,
                ..Scan::default()
            })
            .await
            .unwrap()
            .len(),
        3
    );
}

/// The commit's sync fails and there is no space for a copy. The old value may be read now although the new one may be
/// on the disk later, so neither is shown.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_in_doubt_is_not_shown_before_it_is_durable() {
    let platter = Platter::new(3);
    let driver = open(&platter);
    let mut known = Known::default();
    known.set(&driver, "other").await.unwrap();
    known.set(&driver, "number").await.unwrap();
    platter.fail(Call::Sync, 1);
    // The first copy fails, too.
    platter.fail_creations(true);
    assert!(
        known
            .set(&driver, "number")
            .await
            .is_err_and(|error| kind(&error) == RegisterErrorKind::Ambiguous)
    );
    assert!(driver.load(&key("number")).await.is_err());
    assert!(
        driver
            .register()
            .scan(&Scan {
                limit: 100,
                ..Scan::default()
            })
            .await
            .is_err()
    );
    assert_eq!(get(&driver, "other").await.unwrap(), Some(1));
    platter.fail_creations(false);
    known.check(&driver).await;
    platter.lose_power();
    drop(driver);
    known.check(&open(&platter)).await;
}

/// The directory sync fails after the copy has replaced the database, and the process exits cleanly. The name in the
/// cache then differs from the name on the disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_with_a_name_that_may_not_be_durable_is_copied_again_by_the_next_process() {
    for seed in 0..8 {
        let platter = Platter::new(seed);
        let mut known = Known::default();
        let driver = open(&platter);
        known.set(&driver, "number").await.unwrap();
        platter.kill();
        drop(driver);
        platter.fail(Call::Folder, 1);
        assert_eq!(
            RedbRegister::open_in(platter.clone()).unwrap_err().kind(),
            OpenErrorKind::Other
        );
        let driver = open(&platter);
        known.set(&driver, "number").await.unwrap();
        platter.lose_power();
        drop(driver);
        known.check(&open(&platter)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_needs_a_copy_reports_a_full_disk_and_opens_once_there_is_space() {
    let platter = Platter::new(5);
    let mut known = Known::default();
    let driver = open(&platter);
    known.set(&driver, "number").await.unwrap();
    platter.kill();
    drop(driver);
    platter.set_full(true);
    let error = RedbRegister::open_in(platter.clone()).unwrap_err();
    assert_eq!(error.kind(), OpenErrorKind::Full, "{error}");
    assert!(!platter.has_leftover());
    platter.set_full(false);
    known.check(&open(&platter)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_a_storage_ends_with_its_first_failure() {
    let platter = Platter::new(6);
    let disk = platter.clone();
    let register = RedbRegister::open_with(move || {
        redb::Builder::new().create_with_backend(Plain(DatabaseStorage::create(&disk)?))
    });
    let driver = Driver::new(register.unwrap()).assume_absent();
    set(&driver, "number", 1).await.unwrap();
    platter.fail(Call::Sync, 1);
    assert_eq!(
        kind(&set(&driver, "number", 2).await.unwrap_err()),
        RegisterErrorKind::Ambiguous
    );
    assert_eq!(
        kind(&set(&driver, "number", 3).await.unwrap_err()),
        RegisterErrorKind::Unavailable
    );
    assert_eq!(
        kind(&get(&driver, "number").await.unwrap_err()),
        RegisterErrorKind::Unavailable
    );
}
