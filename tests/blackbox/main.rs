//! What any server of this service must do, asked over the wire: a base URL and credentials are all that is known of it.
//!
//! Without settings the gateway is started on a folder. `IFMATCH_SERVER=memory` and `=file` start it on these object
//! stores. With `IFMATCH_URL` (and `IFMATCH_TABLES_URL`) the server that runs there is asked, which `IFMATCH_SERVER` then
//! names; `IFMATCH_ACCOUNT` is `name:key`, by default the development account, and `IFMATCH_TOKEN` a token that may write.
//! Each run uses containers of its own. What a server is known to do otherwise is in
//! `tests/data/blackbox/differences.txt`; a case listed there that passes is an error.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test speaks by panicking, and the harness by printing"
)]

mod azure;
mod bad;
mod http;
mod plain;
mod races;
mod rows;
mod server;
mod site;
mod suite;
mod tables;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::Arguments;

use crate::server::Server;
use crate::suite::Suite;

/// Most cases wait for the server, some for a lease to end: more threads than processors.
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
    tables::add(&mut suite);
    let conclusion = libtest_mimic::run(&args, suite.into_trials());
    let log = server.stop();
    if log.contains("panicked") || conclusion.has_failed() {
        eprintln!("what the server wrote to stderr:\n{log}");
    }
    if log.contains("panicked") { ExitCode::FAILURE } else { conclusion.exit_code() }
}
