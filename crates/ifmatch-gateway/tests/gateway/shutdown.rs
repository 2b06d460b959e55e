//! Start and end under a service manager, and shutdown.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::raw::{Connection, exchange};
use support::{Client, Gateway, run_command};

use crate::frames::{self, PREFACE, SETTINGS, frame};
use crate::{eventually, get, in_shell, put_head, wait_for};

/// Starts a PUT and sends the first half of its body.
fn half_a_put(gateway: &Gateway) -> Connection {
    let mut put = Connection::open(gateway.address());
    put.send(put_head("slow", 8));
    put.send("half");
    // The PUT and the request for the metrics.
    wait_for(gateway, "ifmatch_requests_in_flight 2");
    put
}

fn wait_until_port_closed(gateway: &Gateway) {
    eventually("the port is closed", || {
        TcpStream::connect(gateway.address()).err()
    });
}

#[tokio::test]
async fn writes_in_flight_are_completed() {
    let mut gateway = Gateway::on_folder(&[]);
    let mut idle = Connection::open(gateway.address());
    idle.send(get("/-/health"));
    idle.answer().expect(200);
    let mut put = half_a_put(&gateway);
    gateway.terminate();
    wait_until_port_closed(&gateway);
    assert!(
        idle.rest().is_empty(),
        "an idle connection is closed immediately"
    );
    put.send("done");
    let answer = put.answer().expect(201);
    assert_eq!(answer.header("connection"), "close");
    assert!(put.rest().is_empty());
    assert_eq!(gateway.finished().status.code(), Some(0));

    gateway.restart();
    let kept = Client::new(gateway.address())
        .get("/c/slow", &[])
        .await
        .expect(200);
    assert_eq!((kept.text(), kept.etag()), ("halfdone", answer.etag()));
}

#[tokio::test]
async fn a_write_beyond_the_grace_period_changes_nothing() {
    let mut gateway = Gateway::on_folder(&["--shutdown-grace", "300ms"]);
    let tag = Client::new(gateway.address())
        .put("/c/slow", &[], "old")
        .await
        .expect(201)
        .etag()
        .to_owned();
    let mut put = half_a_put(&gateway);
    let end = gateway.stop();
    assert_eq!(end.status.code(), Some(1), "{end:#?}");
    assert!(
        end.stderr.contains("stopped with open connections"),
        "{end:#?}"
    );
    assert!(put.rest().is_empty());
    gateway.restart();
    let kept = Client::new(gateway.address())
        .get("/c/slow", &[])
        .await
        .expect(200);
    assert_eq!((kept.text(), kept.etag()), ("old", &*tag));
}

/// Its machine is gone, so it doesn't respond to the PING that follows the GOAWAY.
#[test]
fn a_client_that_is_gone_does_not_delay_the_shutdown() {
    let flags = [
        "--shutdown-grace",
        "1h",
        "--keep-alive",
        "1h",
        "--head-timeout",
        "100ms",
    ];
    let mut gateway = Gateway::start(["serve", "--store", "memory://"].iter().chain(&flags));
    let mut gone = Connection::open(gateway.address());
    gone.send(
        [
            PREFACE,
            &frame(SETTINGS, 0, 0, &[]),
            &frames::get(1, "/-/health"),
        ]
        .concat(),
    );
    assert!(gone.is_answered());
    gateway.terminate();
    assert_eq!(gateway.finished().status.code(), Some(0));
}

#[test]
fn a_second_signal_does_not_wait() {
    let mut gateway = Gateway::start(["serve", "--store", "memory://", "--shutdown-grace", "1h"]);
    let mut put = half_a_put(&gateway);
    gateway.terminate();
    wait_until_port_closed(&gateway);
    assert_eq!(gateway.stop().status.code(), Some(1));
    assert!(put.rest().is_empty());
}

#[test]
fn health_reports_the_shutdown_before_the_port_closes() {
    let mut gateway = Gateway::start(["serve", "--store", "memory://", "--shutdown-delay", "1h"]);
    gateway.terminate();
    let health = eventually("health expected 503", || {
        Some(exchange(gateway.address(), get("/-/health"))).filter(|health| health.status != 200)
    });
    assert_eq!(
        health.expect(503).json(),
        serde_json::json!({ "status": "stopping" })
    );
    exchange(gateway.address(), get("/")).expect(200);
    // A second signal ends the delay.
    assert!(gateway.stop().status.code().is_some());
}

/// A request that is sent just before the server closes its connection is lost. During the delay, a client learns from a response
/// that it must open another one.
#[test]
fn responses_close_their_connections_during_the_delay() {
    let mut gateway = Gateway::start(["serve", "--store", "memory://", "--shutdown-delay", "1h"]);
    let mut kept: Vec<_> = (0..16)
        .map(|_| Connection::open(gateway.address()))
        .collect();
    for connection in &mut kept {
        connection.send(get("/-/health"));
        assert!(
            !connection
                .answer()
                .expect(200)
                .headers
                .contains_key("connection")
        );
    }
    gateway.terminate();
    eventually("health expected 503", || {
        Some(exchange(gateway.address(), get("/-/health"))).filter(|health| health.status == 503)
    });
    for connection in &mut kept {
        connection.send(get("/"));
        assert_eq!(
            connection.answer().expect(200).header("connection"),
            "close"
        );
        assert!(connection.rest().is_empty());
    }
    gateway.stop();
}

/// Timeout for a message, far beyond the expected time.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Receives the next message.
fn next(manager: &UnixDatagram) -> String {
    let mut message = [0; 1024];
    let length = manager.recv(&mut message).unwrap();
    String::from_utf8(message[..length].to_vec()).unwrap()
}

#[test]
fn the_service_manager_follows_the_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let [socket, tokens] = ["notify", "tokens"].map(|name| folder.path().join(name));
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(TIMEOUT)).unwrap();
    std::fs::write(&tokens, "token").unwrap();
    let mut command = Gateway::command();
    command
        .args([
            "serve",
            "--store",
            "memory://",
            "--listen",
            "127.0.0.1:0",
            "--write-token-file",
        ])
        .arg(&tokens);
    command.env("NOTIFY_SOCKET", &socket);
    let mut gateway = Gateway::launch(command);
    assert_eq!(next(&manager), "READY=1\nSTATUS=serving\n");
    for (content, end) in [
        ("another", "READY=1\nSTATUS=serving\n"),
        ("", "READY=1\nSTATUS=serving; the last reload failed: "),
    ] {
        std::fs::write(&tokens, content).unwrap();
        gateway.hang_up();
        let reloading = next(&manager);
        assert!(
            reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="),
            "{reloading}"
        );
        let reloaded = next(&manager);
        assert!(
            reloaded.starts_with(end) && reloaded.lines().count() == 2,
            "{reloaded}"
        );
    }
    gateway.terminate();
    assert_eq!(next(&manager), "STOPPING=1\n");
    assert_eq!(gateway.finished().status.code(), Some(0));
}

/// A command that gets the socket as systemd passes it: as descriptor 3, with the process's own number. `exec` keeps the number.
fn with_socket(socket: &TcpListener, listen: SocketAddr) -> Command {
    with_descriptor(socket.try_clone().unwrap(), listen)
}

fn with_descriptor(descriptor: impl Into<OwnedFd>, listen: SocketAddr) -> Command {
    let mut command = in_shell(r#"LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@" 3<&0 </dev/null"#);
    command.args([
        "serve",
        "--store",
        "memory://",
        "--listen",
        &listen.to_string(),
    ]);
    let descriptor: OwnedFd = descriptor.into();
    command.stdin(Stdio::from(descriptor));
    command
}

/// A request that arrives between two processes waits for the second one.
#[test]
fn a_restart_refuses_no_connection_at_a_socket_of_the_service_manager() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let mut first = Gateway::launch(with_socket(&socket, address));
    assert_eq!(first.address(), address);
    let mut answered = Connection::open(address);
    answered.send(get("/-/health"));
    answered.answer().expect(200);
    assert_eq!(first.stop().status.code(), Some(0));
    let mut waiting = Connection::open(address);
    waiting.send(get("/-/health"));
    let _second = Gateway::launch(with_socket(&socket, address));
    waiting.answer().expect(200);
}

/// A unit with `Accept=yes` passes a connection, on which nothing can be accepted.
#[test]
fn a_socket_that_is_connected_already_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let _client = TcpStream::connect(address).unwrap();
    let (connected, _) = listener.accept().unwrap();
    drop(listener);
    let refused = run_command(&mut with_descriptor(connected, address));
    assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
    assert!(
        refused.stderr.contains("isn't a TCP listener") && refused.stderr.contains("Accept=no"),
        "{refused:#?}"
    );
}

#[test]
fn a_socket_that_no_setting_names_is_refused() {
    let [passed, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let (passed_address, other_address) =
        (passed.local_addr().unwrap(), other.local_addr().unwrap());
    drop(other);
    let refused = run_command(&mut with_socket(&passed, other_address));
    assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
    assert!(
        refused.stderr.contains(&passed_address.to_string()),
        "{refused:#?}"
    );
}
