//! The service manager: messages to it (ready, reload, stop), and sockets from it.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::raw::Connection;
use support::{Gateway, run_command};

use crate::get;

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
    command.args(["serve", "--store", "memory://", "--listen", "127.0.0.1:0", "--write-token-file"]).arg(&tokens);
    command.env("NOTIFY_SOCKET", &socket);
    let mut gateway = Gateway::launch(command);
    assert_eq!(next(&manager), "READY=1\nSTATUS=serving\n");
    for (content, end) in
        [("another", "READY=1\nSTATUS=serving\n"), ("", "READY=1\nSTATUS=serving; the last reload failed: ")]
    {
        std::fs::write(&tokens, content).unwrap();
        gateway.hang_up();
        let reloading = next(&manager);
        assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
        let reloaded = next(&manager);
        assert!(reloaded.starts_with(end) && reloaded.lines().count() == 2, "{reloaded}");
    }
    gateway.terminate();
    assert_eq!(next(&manager), "STOPPING=1\n");
    assert_eq!(gateway.finished().status.code(), Some(0));
}

/// A command that gets the socket as systemd passes it: as descriptor 3, with the process's own number. `exec` keeps the number.
fn with_socket(socket: &TcpListener, listen: SocketAddr) -> Command {
    let gateway = Gateway::command();
    let mut command = Command::new("sh");
    for (name, value) in gateway.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(["-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\" 3<&0 </dev/null", "sh"]);
    command.arg(gateway.get_program()).args(["serve", "--store", "memory://", "--listen", &listen.to_string()]);
    command.stdin(Stdio::from(OwnedFd::from(socket.try_clone().unwrap())));
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

#[test]
fn a_socket_that_no_setting_names_is_refused() {
    let [passed, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let (passed_address, other_address) = (passed.local_addr().unwrap(), other.local_addr().unwrap());
    drop(other);
    let refused = run_command(&mut with_socket(&passed, other_address));
    assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
    assert!(refused.stderr.contains(&passed_address.to_string()), "{refused:#?}");
}
