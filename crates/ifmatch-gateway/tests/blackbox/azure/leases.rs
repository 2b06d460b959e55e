//! Every lease operation and every use in every lease state, from the tables of the SDK suites.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use support::eventually;

use crate::azure::{A, B, C, acquire, blob, container};
use crate::http::{Http, Reply};
use crate::site::Site;
use crate::suite::{Suite, said, words};

/// A row: an action, the state before, the outcome, and the state afterwards.
#[derive(Clone)]
struct Row {
    action: String,
    before: String,
    status: String,
    code: String,
    after: String,
}

pub(crate) fn add(suite: &mut Suite, prepare: bool) {
    let expired = Expired::default();
    for row in table(include_str!(
        "../../../../../tests/sdk/cases/lease-operations.txt"
    )) {
        for is_container in [false, true] {
            let on = if is_container {
                "container lease"
            } else {
                "lease"
            };
            add_row(
                suite,
                &expired,
                format!("{on}: {} {}", row.action, row.before),
                row.clone(),
                is_container,
                operate,
            );
        }
    }
    for row in table(include_str!(
        "../../../../../tests/sdk/cases/lease-uses.txt"
    )) {
        let is_container = row.action.starts_with("container-");
        add_row(
            suite,
            &expired,
            format!("lease: {} {}", row.action, row.before),
            row,
            is_container,
            attempt,
        );
    }
    suite.case("lease: ids are compared as GUIDs", forms);
    suite.case(
        "lease: another break can only shorten the period",
        shortened,
    );
    if prepare {
        expired.prepare(suite.site());
    }
}

fn table(text: &str) -> Vec<Row> {
    let row = |words: Vec<String>| {
        let [action, before, status, code, after] = words.try_into().expect("five columns");
        Row {
            action,
            before,
            status,
            code,
            after,
        }
    };
    words(text).into_iter().map(row).collect()
}

fn add_row(
    suite: &mut Suite,
    expired: &Expired,
    name: String,
    row: Row,
    is_container: bool,
    run: fn(&mut Http<'_>, &str, &Row, bool),
) {
    if row.before == "expired" {
        expired.announce(&name, is_container);
    }
    let (expired, case) = (expired.clone(), name.clone());
    suite.case(name, move |site| {
        let path = if row.before == "expired" {
            expired.path(&case)
        } else {
            in_state(site, &row.before, is_container)
        };
        let mut http = site.azure();
        run(&mut http, &path, &row, is_container);
        assert_eq!(
            state(&mut http, &target(&path, is_container)),
            row.after,
            "the state afterwards"
        );
    });
}

/// Creates a resource in a state that needs no waiting.
fn in_state(site: &Site, state: &str, is_container: bool) -> String {
    let mut http = site.azure();
    let path = if is_container {
        container(&mut http, site)
    } else {
        blob(&mut http, site)
    };
    let on = target(&path, is_container);
    if state != "available" {
        acquire(&mut http, &on, A, -1).is(201);
    }
    let period = [("breaking", "60"), ("broken", "0")]
        .into_iter()
        .find(|(name, _)| *name == state);
    if let Some((_, period)) = period {
        http.lease(&on, "break", &[("x-ms-lease-break-period", period)])
            .is(202);
    }
    path
}

/// Performs a lease operation, which changes neither tag nor date.
fn operate(http: &mut Http<'_>, path: &str, row: &Row, is_container: bool) {
    let on = target(path, is_container);
    let before = http.head(&on).is(200);
    let words: Vec<&str> = row.action.split('-').collect();
    let reply = match words[..] {
        ["acquire", "none"] => http.lease(&on, "acquire", &[("x-ms-lease-duration", "60")]),
        ["acquire", id] => acquire(http, &on, id_of(id), 60),
        ["change", from, to] => http.lease(
            &on,
            "change",
            &[
                ("x-ms-lease-id", id_of(from)),
                ("x-ms-proposed-lease-id", id_of(to)),
            ],
        ),
        ["break", period] => http.lease(&on, "break", &[("x-ms-lease-break-period", period)]),
        [action, id] => http.lease(&on, action, &[("x-ms-lease-id", id_of(id))]),
        _ => panic!("{}", row.action),
    };
    checked(reply, row);
    let after = http.head(&on).is(200);
    for name in ["etag", "last-modified"] {
        assert_eq!(
            before.header(name),
            after.header(name),
            "a lease operation changed {name}"
        );
    }
}

/// Uses a leased resource, with or without an id.
fn attempt(http: &mut Http<'_>, path: &str, row: &Row, _is_container: bool) {
    let (what, id) = match row.action.rsplit_once('-') {
        Some((what, id @ ("a" | "b"))) => (what, Some(id_of(id))),
        _ => (row.action.as_str(), None),
    };
    let id: Vec<(&str, &str)> = id.map(|id| ("x-ms-lease-id", id)).into_iter().collect();
    let with = |more: &[(&'static str, &'static str)]| [&id[..], more].concat();
    let reply = match what {
        "write" => http.put(
            &format!("{path}?comp=metadata"),
            &with(&[("x-ms-meta-colour", "red")]),
            "",
        ),
        "put" => http.upload(path, &id, "second"),
        "create" => http.upload(path, &with(&[("if-none-match", "*")]), "second"),
        "delete" => http.delete(path, &id),
        "read" => http.send("GET", path, &id, ""),
        "container-delete" => http.delete(&format!("{path}?restype=container"), &id),
        "container-write" => http.upload(&format!("{path}/another"), &id, "x"),
        "container-read" => http.send(
            "GET",
            &format!("{path}?restype=container&comp=list"),
            &id,
            "",
        ),
        _ => panic!("{what}"),
    };
    checked(reply, row);
}

fn checked(reply: Reply, row: &Row) {
    match (row.status.as_str(), row.code.as_str()) {
        ("ok", _) if reply.status.is_success() => {}
        ("ok", _) => reply.fail("success"),
        (status, "-" | "any") => drop(reply.is(status.parse().expect("a status"))),
        (status, code) => reply.refused(status.parse().expect("a status"), code),
    }
}

fn id_of(word: &str) -> &'static str {
    match word {
        "a" => A,
        "b" => B,
        "c" => C,
        _ => panic!("no id: {word}"),
    }
}

fn forms(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    acquire(&mut http, &path, A, -1).is(201);
    let digits = A.replace('-', "");
    let hexadecimal =
        "{0xa0000000,0x0000,0x4000,{0x80,0x00,0x00,0x00,0x00,0x00,0x00,0x0a}}".to_owned();
    let braced = [format!("{{{A}}}"), format!("({A})"), hexadecimal];
    for form in [A.to_uppercase(), digits.clone(), digits.to_uppercase()]
        .into_iter()
        .chain(braced)
    {
        http.lease(&path, "renew", &[("x-ms-lease-id", &form)])
            .is(200);
        http.upload(&path, &[("x-ms-lease-id", &form)], "second")
            .is(201);
    }
}

#[expect(clippy::disallowed_methods, reason = "the server counts in real time")]
fn shortened(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    acquire(&mut http, &path, A, -1).is(201);
    let (begun, mut left) = (Instant::now(), u64::MAX);
    for (period, most) in [("59", 59_u64), ("60", 59), ("50", 50), ("60", 50)] {
        let reply = http
            .lease(&path, "break", &[("x-ms-lease-break-period", period)])
            .is(202);
        let seconds: u64 = reply.header("x-ms-lease-time").parse().expect("seconds");
        // Time has passed since the first break, and the server counts whole seconds.
        let least = most.saturating_sub(begun.elapsed().as_secs() + 2);
        assert!(
            (least..=most.min(left)).contains(&seconds),
            "{seconds} s after a break in {period} s"
        );
        left = seconds;
    }
    acquire(&mut http, &path, B, 60).refused(409, "LeaseAlreadyPresent");
}

/// The shortest lease, in seconds.
const SHORTEST: i32 = 15;

/// The resources prepared for the announced cases.
#[derive(Clone, Default)]
struct Expired(Arc<(Mutex<Ready>, Condvar)>);

#[derive(Default)]
struct Ready {
    wanted: Vec<(String, bool)>,
    /// The path for each case, or the error of the preparation.
    paths: Option<Result<HashMap<String, String>, String>>,
}

impl Expired {
    /// Announces a case that needs a blob or a container.
    fn announce(&self, case: &str, is_container: bool) {
        let (ready, _) = &*self.0;
        ready
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .wanted
            .push((case.to_owned(), is_container));
    }

    /// Starts the preparation of the announced resources.
    fn prepare(&self, site: &Arc<Site>) {
        let (shared, site) = (Arc::clone(&self.0), Arc::clone(site));
        std::thread::spawn(move || {
            let (ready, done) = &*shared;
            let wanted =
                std::mem::take(&mut ready.lock().unwrap_or_else(PoisonError::into_inner).wanted);
            // A panic fails every case that waits here.
            let made = catch_unwind(AssertUnwindSafe(|| make(&site, wanted)))
                .map_err(|panic| said(panic.as_ref()));
            ready.lock().unwrap_or_else(PoisonError::into_inner).paths = Some(made);
            done.notify_all();
        });
    }

    /// Returns the path for a case, once its lease has expired.
    #[track_caller]
    fn path(&self, case: &str) -> String {
        let (ready, done) = &*self.0;
        let guard = ready.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = done.wait_while(guard, |ready| ready.paths.is_none());
        let guard = wait.unwrap_or_else(PoisonError::into_inner);
        match &guard.paths {
            Some(Ok(paths)) => paths[case].clone(),
            Some(Err(error)) => panic!("preparing expired leases: {error}"),
            None => unreachable!("waited for above"),
        }
    }
}

fn make(site: &Site, wanted: Vec<(String, bool)>) -> HashMap<String, String> {
    let mut http = site.azure();
    let mut paths = HashMap::new();
    for (case, is_container) in wanted {
        let path = if is_container {
            container(&mut http, site)
        } else {
            blob(&mut http, site)
        };
        acquire(&mut http, &target(&path, is_container), A, SHORTEST).is(201);
        paths.insert(case, (path, is_container));
    }
    std::thread::sleep(Duration::from_secs(SHORTEST.unsigned_abs().into()));
    for (path, is_container) in paths.values() {
        eventually("an expired lease", || {
            (state(&mut http, &target(path, *is_container)) == "expired").then_some(())
        });
    }
    paths
        .into_iter()
        .map(|(case, (path, _))| (case, path))
        .collect()
}

/// Returns the target of lease operations and of HEAD.
fn target(path: &str, is_container: bool) -> String {
    if is_container {
        format!("{path}?restype=container")
    } else {
        path.to_owned()
    }
}

/// Returns the state of a lease, or `gone` if the resource doesn't exist.
fn state(http: &mut Http<'_>, target: &str) -> String {
    let reply = http.head(target);
    if reply.status == 404 {
        "gone".to_owned()
    } else {
        reply.is(200).field("x-ms-lease-state").to_owned()
    }
}
