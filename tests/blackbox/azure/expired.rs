//! Blobs and containers with expired leases, which all expire together while other cases run.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::azure::{A, acquire, blob, container};
use crate::http::Http;
use crate::site::{Site, eventually};
use crate::suite::said;

/// The shortest lease, in seconds.
const SHORTEST: i32 = 15;

/// The resources prepared for the announced cases.
#[derive(Clone, Default)]
pub(crate) struct Expired(Arc<(Mutex<Ready>, Condvar)>);

#[derive(Default)]
struct Ready {
    wanted: Vec<(String, bool)>,
    /// The path for each case, or the error of the preparation.
    paths: Option<Result<HashMap<String, String>, String>>,
}

impl Expired {
    /// Announces a case that needs a blob or a container.
    pub(crate) fn announce(&self, case: &str, is_container: bool) {
        let (ready, _) = &*self.0;
        ready.lock().unwrap_or_else(PoisonError::into_inner).wanted.push((case.to_owned(), is_container));
    }

    /// Starts the preparation of the announced resources.
    pub(crate) fn prepare(&self, site: &Arc<Site>) {
        let (shared, site) = (Arc::clone(&self.0), Arc::clone(site));
        std::thread::spawn(move || {
            let (ready, done) = &*shared;
            let wanted = std::mem::take(&mut ready.lock().unwrap_or_else(PoisonError::into_inner).wanted);
            // A panic fails every case that waits here.
            let made = std::panic::catch_unwind(|| make(&site, wanted)).map_err(|panic| said(panic.as_ref()));
            ready.lock().unwrap_or_else(PoisonError::into_inner).paths = Some(made);
            done.notify_all();
        });
    }

    /// Returns the path for a case, once its lease has expired.
    #[track_caller]
    pub(crate) fn path(&self, case: &str) -> String {
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
        let path = if is_container { container(&mut http, site) } else { blob(&mut http, site) };
        acquire(&mut http, &target(&path, is_container), A, SHORTEST).is(201);
        paths.insert(case, (path, is_container));
    }
    std::thread::sleep(Duration::from_secs(SHORTEST.unsigned_abs().into()));
    for (path, is_container) in paths.values() {
        eventually("an expired lease", || (state(&mut http, &target(path, *is_container)) == "expired").then_some(()));
    }
    paths.into_iter().map(|(case, (path, _))| (case, path)).collect()
}

/// Returns the target of lease operations and of HEAD.
pub(crate) fn target(path: &str, is_container: bool) -> String {
    if is_container { format!("{path}?restype=container") } else { path.to_owned() }
}

/// Returns the state of a lease, or `gone` if the resource does not exist.
pub(crate) fn state(http: &mut Http<'_>, target: &str) -> String {
    let reply = http.head(target);
    if reply.status == 404 { "gone".to_owned() } else { reply.is(200).field("x-ms-lease-state").to_owned() }
}
