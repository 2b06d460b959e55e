//! Databases for `--register` that can't be reached.

use ifmatch_testbed::Port;
use support::run;

/// Each message says what to check, and none has the password.
#[test]
fn an_engine_that_is_not_there_is_named_with_what_to_check() {
    let port = Port::claim();
    let address = port.address();
    for (register, advice) in [
        (
            format!("postgres://user:secret@{address}/app"),
            format!("PostgreSQL at {address} refused the connection. Check that it is running."),
        ),
        (
            format!("redis://{address}"),
            "Redis refused the connection. Check its address, and that it is running.".to_owned(),
        ),
        (
            format!("etcd://{address}"),
            "Can't reach any etcd member. Check the addresses".to_owned(),
        ),
    ] {
        let mut commands = vec![
            vec!["serve", "--store", "memory://"],
            vec!["register", "status"],
        ];
        if register.starts_with("postgres") {
            commands.push(vec!["register", "migrate"]);
        }
        for command in commands {
            let finished = run([&command[..], &["--register", &register]].concat());
            assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
            assert!(finished.stderr.contains(&advice), "{}", finished.stderr);
            assert!(!finished.stderr.contains("secret"), "{}", finished.stderr);
        }
    }
}
