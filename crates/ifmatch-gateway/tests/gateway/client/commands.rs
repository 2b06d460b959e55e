//! `ifmatch lock` and `ifmatch elect` as processes: exclusion, exit codes, signals, and holders that are stopped or killed.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use ifmatch_testbed::{LIMIT, Network, Proxy};
use support::{Gateway, Guarded, kill, run};

use super::serve;

/// Runs `sh` with a script under a lock.
fn locked(url: &str, flags: &[&str], script: &str) -> support::Finished {
    run([&["lock", url], flags, &["--", "sh", "-c", script]].concat())
}

#[test]
fn the_command_gets_its_fence_and_its_exit_code_is_passed_on() {
    let gateway = Gateway::on_folder(&[]);
    let url = gateway.url("/locks/a");
    let fence = |end: &support::Finished| end.stdout.trim().parse::<u64>().expect("a number");
    let first = locked(&url, &["--name", "test"], "echo $IFMATCH_FENCE");
    let second = locked(
        &url,
        &[],
        "echo $IFMATCH_FENCE; test ${#IFMATCH_LEASE_ID} -eq 16",
    );
    assert!(fence(&second) > fence(&first));
    assert_eq!(
        (first.status.code(), second.status.code()),
        (Some(0), Some(0))
    );
    assert_eq!(locked(&url, &[], "exit 7").status.code(), Some(7));
    assert_eq!(locked(&url, &[], "kill -KILL $$").status.code(), Some(137));
    assert_eq!(
        run(["lock", &url, "--", "/no/such/command"]).status.code(),
        Some(127)
    );
    assert_eq!(locked("nonsense", &[], "true").status.code(), Some(2));
    assert_eq!(
        locked(&url, &["--ttl", "1s"], "true").status.code(),
        Some(2)
    );
    assert_eq!(
        locked("http://127.0.0.1:1/locks/a", &["--wait", "0s"], "true")
            .status
            .code(),
        Some(75)
    );
}

#[test]
fn a_held_lock_is_not_acquired_until_its_command_ends() {
    let gateway = Gateway::on_folder(&[]);
    let url = gateway.url("/locks/a");
    let mut first = Guarded::start(
        &["lock", &url, "--ttl", "3s"],
        "echo started; exec sleep 600",
    );
    assert_eq!(first.line(), "started");
    let end = locked(&url, &["--wait", "3s"], "echo ran");
    assert!(end.stderr.contains("held by process "), "{end:#?}");
    let end = locked(&url, &["--wait", "0s"], "echo ran");
    assert_eq!((end.status.code(), end.stdout.as_str()), (Some(75), ""));
    let end = locked(&url, &["--unless-held"], "echo ran");
    assert_eq!(
        (end.status.code(), end.stdout.as_str()),
        (Some(75), ""),
        "the first one renews its lock"
    );
    assert_eq!(
        locked(&url, &["--unless-held", "--wait", "1s"], "true")
            .status
            .code(),
        Some(2)
    );
    first.signal("TERM");
    assert_eq!(first.code(), Some(143));
    assert_eq!(
        locked(&url, &["--unless-held"], "true").status.code(),
        Some(0)
    );
    assert_eq!(
        locked(&url, &["--wait", "0s"], "true").status.code(),
        Some(0)
    );
}

#[test]
fn signals_reach_the_command() {
    let gateway = Gateway::on_folder(&[]);
    let url = gateway.url("/locks/a");
    for signal in ["TERM", "INT", "HUP", "USR1"] {
        let script =
            format!("trap 'echo got; exit 9' {signal}; echo started; while :; do sleep 0.05; done");
        let mut guarded = Guarded::start(&["lock", &url], &script);
        assert_eq!(guarded.line(), "started");
        guarded.signal(signal);
        assert_eq!(
            (guarded.line().as_str(), guarded.code()),
            ("got", Some(9)),
            "{signal}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_without_a_network_is_ended_even_if_it_ignores_sigterm() {
    let gateway = Gateway::on_folder(&[]);
    let proxy = Proxy::start(gateway.address()).await;
    let url = format!("http://{}/locks/a", proxy.address());
    let run = tokio::task::spawn_blocking(move || {
        let script = "trap '' TERM; echo started; while :; do sleep 0.05; done";
        let mut guarded = Guarded::start(&["lock", &url, "--ttl", "3s"], script);
        assert_eq!(guarded.line(), "started");
        proxy.set(Network::Silent);
        // The end of its output is the end of the command.
        assert_eq!(guarded.line(), "");
        guarded.code()
    });
    assert_eq!(run.await.unwrap(), Some(70));
}

/// The shell ends at SIGTERM. The process that it has started ignores the signal, and would go on to work without the lock.
#[tokio::test(flavor = "multi_thread")]
async fn the_processes_that_a_command_has_started_are_ended_with_it() {
    let gateway = Gateway::on_folder(&[]);
    let proxy = Proxy::start(gateway.address()).await;
    let url = format!("http://{}/locks/a", proxy.address());
    let script = "(trap '' TERM; while :; do sleep 0.05; done) & echo $$; wait";
    let mut guarded = Guarded::start(&["lock", &url, "--ttl", "3s"], script);
    let group = guarded.line();
    proxy.set(Network::Silent);
    // The end of the output is the end of all processes.
    let mut end = tokio::task::spawn_blocking(move || (guarded.line(), guarded.code()));
    let ended = tokio::time::timeout(Duration::from_mins(1), &mut end).await;
    if ended.is_err() {
        kill("KILL", &format!("-{group}"));
    }
    assert_eq!(
        ended.expect("a process works without the lock").unwrap(),
        (String::new(), Some(70))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer_is_reported_until_it_does() {
    let gateway = Gateway::on_folder(&[]);
    let proxy = Proxy::start(gateway.address()).await;
    proxy.set(Network::Reset);
    let url = format!("http://{}/leaders/a", proxy.address());
    let run = tokio::task::spawn_blocking(move || {
        let mut command = Gateway::command();
        command
            .args(["elect", &url, "--", "echo", "leads"])
            .stdin(Stdio::null());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ifmatch starts");
        let mut report = String::new();
        BufReader::new(child.stderr.as_mut().expect("piped"))
            .read_line(&mut report)
            .expect("a pipe");
        proxy.set(Network::Whole);
        (report, child.wait_with_output().expect("a child"))
    });
    let (report, end) = run.await.unwrap();
    assert!(
        report.contains("Retrying until the server responds"),
        "{report}"
    );
    assert_eq!(
        (end.status.code(), &*end.stdout),
        (Some(0), &b"leads\n"[..]),
        "{end:?}"
    );
}

#[test]
fn a_stopped_holder_finds_the_lock_lost() {
    let gateway = Gateway::on_folder(&[]);
    let url = gateway.url("/locks/a");
    let mut stopped = Guarded::start(
        &["lock", &url, "--ttl", "9s"],
        "echo started; exec sleep 600",
    );
    assert_eq!(stopped.line(), "started");
    stopped.signal("STOP");
    assert_eq!(
        locked(&url, &["--ttl", "9s"], "true").status.code(),
        Some(0)
    );
    stopped.signal("CONT");
    assert_eq!(stopped.code(), Some(70));
}

/// While this process was stopped, another holder has run, and then its own command has ended.
#[test]
fn a_lost_lock_is_no_success_of_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = serve(folder.path());
    let go = folder.path().join("go");
    let script = format!(
        "echo started; while [ ! -e {} ]; do sleep 0.05; done; echo ended",
        go.display()
    );
    let urls: Vec<_> = (0..4)
        .map(|number| gateway.url(&format!("/locks/{number}")))
        .collect();
    let mut stopped: Vec<_> = urls
        .iter()
        .map(|url| Guarded::start(&["lock", url, "--ttl", "9s"], &script))
        .collect();
    for holder in &mut stopped {
        assert_eq!(holder.line(), "started");
        holder.signal("STOP");
    }
    std::thread::scope(|scope| {
        let others: Vec<_> = urls
            .iter()
            .map(|url| scope.spawn(|| locked(url, &["--ttl", "9s"], "true")))
            .collect();
        assert!(
            others
                .into_iter()
                .all(|other| other.join().unwrap().status.code() == Some(0))
        );
    });
    std::fs::write(&go, "").unwrap();
    for holder in &mut stopped {
        assert_eq!(holder.line(), "ended");
    }
    for holder in &mut stopped {
        holder.signal("CONT");
        assert_eq!(holder.code(), Some(70));
    }
}

/// The command ends, the server doesn't answer the release, and the signal ends the wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_a_release() {
    let gateway = Gateway::on_folder(&[]);
    let proxy = Proxy::start(gateway.address()).await;
    let url = format!("http://{}/locks/a", proxy.address());
    let run = tokio::task::spawn_blocking(move || {
        let mut command = Gateway::command();
        command.stderr(Stdio::piped());
        let mut guarded = Guarded::of(command, &["lock", &url], "echo started; exec sleep 600");
        assert_eq!(guarded.line(), "started");
        proxy.set(Network::Silent);
        // The first ones may reach the command, or the time before the release.
        let pause = Duration::from_millis(50);
        let mut signals = 0;
        while guarded.process().try_wait().expect("a child").is_none() {
            assert!(
                pause * signals < LIMIT,
                "the command has not ended within {LIMIT:?}"
            );
            guarded.signal("TERM");
            signals += 1;
            std::thread::sleep(pause);
        }
        let mut said = String::new();
        let stderr = guarded.process().stderr.as_mut().expect("piped");
        BufReader::new(stderr).read_line(&mut said).expect("a pipe");
        (guarded.code(), said)
    });
    let (code, said) = run.await.unwrap();
    assert_eq!(code, Some(143));
    assert!(said.contains("a signal interrupted the release"), "{said}");
}

#[test]
fn a_killed_holder_is_followed() {
    let gateway = Gateway::on_folder(&[]);
    let url = gateway.url("/locks/a");
    let mut killed = Guarded::start(&["lock", &url, "--ttl", "3s"], "echo $$; exec sleep 600");
    let command = killed.line();
    killed.signal("KILL");
    assert_eq!(killed.code(), None);
    assert_eq!(
        locked(&url, &["--wait", "10m"], "true").status.code(),
        Some(0)
    );
    // SIGKILL can't be passed on: the command went on without the lock.
    kill("KILL", &command);
}

#[test]
fn a_candidate_leads_after_the_leader_and_ends_with_its_command() {
    let gateway = Gateway::on_folder(&[]);
    let url = gateway.url("/leaders/a");
    let mut leader = Guarded::start(
        &["elect", &url, "--name", "one"],
        "echo leads; exec sleep 600",
    );
    assert_eq!(leader.line(), "leads");
    let mut candidate = Guarded::start(&["elect", &url, "--name", "two"], "echo leads; exit 4");
    leader.signal("TERM");
    assert_eq!(leader.code(), Some(143));
    assert_eq!(
        (candidate.line().as_str(), candidate.code()),
        ("leads", Some(4))
    );
}

#[test]
fn a_leader_that_was_stopped_leads_again_with_a_new_command() {
    let gateway = Gateway::on_folder(&[]);
    let url = gateway.url("/leaders/a");
    let script = "echo $IFMATCH_FENCE; exec sleep 600";
    let mut leader = Guarded::start(&["elect", &url, "--ttl", "3s"], script);
    let first: u64 = leader.line().parse().unwrap();
    leader.signal("STOP");
    let between = run([
        "elect",
        &url,
        "--ttl",
        "3s",
        "--",
        "sh",
        "-c",
        "echo $IFMATCH_FENCE",
    ]);
    let between: u64 = between.stdout.trim().parse().unwrap();
    leader.signal("CONT");
    let second: u64 = leader.line().parse().unwrap();
    assert!(first < between && between < second);
    leader.signal("TERM");
    assert_eq!(leader.code(), Some(143));
}

/// The server has a certificate of a private authority.
#[test]
fn a_private_certificate_authority_is_trusted_by_a_flag() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (cert, key) = (
        file("cert.pem", signed.cert.pem()),
        file("key.pem", signed.signing_key.serialize_pem()),
    );
    let gateway = Gateway::start([
        "serve",
        "--store",
        "memory://",
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
    ]);
    let (lock, container) = (gateway.url("/locks/a"), gateway.url("/box"));
    let code = |arguments: &[&str]| run(arguments).status.code();
    assert_eq!(
        code(&["lock", &lock, "--ca", &cert, "--wait", "5s", "--", "true"]),
        Some(0)
    );
    assert_eq!(
        code(&["elect", &lock, "--ca", &cert, "--", "sh", "-c", "exit 4"]),
        Some(4)
    );
    assert_eq!(code(&["check", &container, "--ca", &cert]), Some(0));
    // The system doesn't trust it, and `http` isn't its protocol: no other attempt can succeed.
    let plain = [&lock, &container].map(|url| url.replace("https:", "http:"));
    for (lock, container, advice) in [
        (&lock, &container, "certificate"),
        (&plain[0], &plain[1], "Use https://"),
    ] {
        for arguments in [
            &["lock", lock, "--", "true"][..],
            &["elect", lock, "--", "true"],
            &["check", container],
        ] {
            let end = run(arguments);
            assert_eq!(end.status.code(), Some(1), "{end:#?}");
            assert!(
                end.stderr.contains(advice) && !end.stderr.contains("Error("),
                "{end:#?}"
            );
        }
    }
    let http = Gateway::start(["serve", "--store", "memory://"]);
    let end = run([
        "lock",
        &http.url("/locks/a").replace("http:", "https:"),
        "--ca",
        &cert,
        "--",
        "true",
    ]);
    assert!(
        end.status.code() == Some(1) && end.stderr.contains("Use http://"),
        "{end:#?}"
    );

    let text = file("text.pem", "no certificate".to_owned());
    for command in [
        &["lock", &lock, "--ca", &text, "--", "true"][..],
        &["check", &container, "--ca", &text],
    ] {
        let end = run(command);
        assert_eq!(end.status.code(), Some(2));
        assert!(
            end.stderr.contains("--ca") && end.stderr.contains("PEM"),
            "{}",
            end.stderr
        );
    }
}
