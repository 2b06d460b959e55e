//! Messages to the service manager: ready, reload, stop.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use support::Gateway;

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
