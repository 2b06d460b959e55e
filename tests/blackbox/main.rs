//! Black-box tests of any server of this service, given its URL and credentials.
//!
//! By default, the tests start the gateway on a folder. `IFMATCH_SERVER=memory` or `=file` starts it on that object
//! store. With `IFMATCH_URL` (and `IFMATCH_TABLES_URL`, `IFMATCH_S3_URL`), the tests use a running server, with the name given in
//! `IFMATCH_SERVER`. `IFMATCH_ACCOUNT` is `name:key`, by default the development account; `IFMATCH_TOKEN` is a token
//! with write access. Each run uses its own containers. Known differences between servers are in
//! `tests/data/blackbox/differences.txt`; a case listed there that passes is an error.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "tests fail by panicking, and the harness prints"
)]

mod azure;
mod bad;
mod http;
mod plain;
mod races;
mod s3;
mod scenarios;
mod site;
mod suite;
mod tables;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::Arguments;

use crate::site::Server;
use crate::suite::Suite;

/// Most cases wait for the server, some for a lease to expire, so there are more threads than processors.
const THREADS: usize = 24;

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(THREADS);
    let server = Server::of_environment();
    let mut suite = Suite::new(Arc::clone(server.site()));
    azure::add(&mut suite, !args.list);
    plain::add(&mut suite);
    bad::add(&mut suite);
    races::add(&mut suite);
    scenarios::add(&mut suite);
    s3::add(&mut suite);
    tables::add(&mut suite);
    let conclusion = libtest_mimic::run(&args, suite.into_trials());
    let log = server.stop();
    if log.contains("panicked") || conclusion.has_failed() {
        eprintln!("stderr of the server:\n{log}");
    }
    if log.contains("panicked") { ExitCode::FAILURE } else { conclusion.exit_code() }
}
