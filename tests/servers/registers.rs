//! Databases for `--register` that can't be reached.

use ifmatch_testbed::Port;
use support::run;

#[test]
fn a_database_that_is_not_there_is_reported_without_the_password() {
    let port = Port::claim();
    let register = format!("postgres://user:secret@{}/database", port.address());
    for args in [
        &["serve", "--store", "memory://", "--register", &register][..],
        &["register", "migrate", "--register", &register],
        &["register", "status", "--register", &register],
    ] {
        let finished = run(args.iter().copied());
        assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
        assert!(
            finished
                .stderr
                .contains("refused the connection. Check that it is running."),
            "{}",
            finished.stderr
        );
        assert!(!finished.stderr.contains("secret"), "{}", finished.stderr);
    }
}

/// Each message says what to check.
#[test]
fn an_engine_that_is_not_there_is_named_with_what_to_check() {
    for (register, advice) in [
        (
            "postgres://user:secret@127.0.0.1:1/app",
            "PostgreSQL at 127.0.0.1:1 refused the connection",
        ),
        (
            "redis://127.0.0.1:1",
            "Redis refused the connection. Check its address, and that i",
        ),
        (
            "etcd://127.0.0.1:1",
            "Can't reach any etcd member. Check the addresses",
        ),
    ] {
        for args in [
            &["serve", "--store", "memory://", "--register", register][..],
            &["register", "status", "--register", register],
        ] {
            let finished = run(args.iter().copied());
            assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
            assert!(finished.stderr.contains(advice), "{}", finished.stderr);
            assert!(!finished.stderr.contains("secret"), "{}", finished.stderr);
        }
    }
}
