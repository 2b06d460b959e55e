//! An upgraded connection through a real server in front of the proxy.

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// An upstream that accepts any upgrade, with framing fields, and then echoes its input in upper case.
async fn shouter() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_head(&mut stream).await;
        let agreed =
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: shout\r\ncontent-length: 5\r\n\r\n";
        stream.write_all(agreed.as_bytes()).await.unwrap();
        let mut buffer = [0; 64];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            stream.write_all(&buffer[..count].to_ascii_uppercase()).await.unwrap();
        }
    });
    address
}

async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn both_ends_can_send_after_an_upgrade() {
    let upstream = ifmatch_proxy::Upstream::parse(&[shouter().await]).unwrap();
    let proxy = ifmatch_proxy::Proxy::builder().route("/", upstream).unwrap().build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), TowerToHyperService::new(proxy));
        connection.with_upgrades().await.unwrap();
    });
    let mut client = TcpStream::connect(address).await.unwrap();
    let ask = "GET /chat HTTP/1.1\r\nhost: example.com\r\nconnection: upgrade\r\nupgrade: shout\r\n\r\n";
    client.write_all(ask.as_bytes()).await.unwrap();
    let head = read_head(&mut client).await.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101") && head.contains("upgrade: shout\r\n"), "{head}");
    assert!(!head.contains("content-length"), "a 101 has no content (RFC 9110 §8.6): {head}");
    client.write_all(b"hello").await.unwrap();
    let mut reply = [0; 5];
    client.read_exact(&mut reply).await.unwrap();
    assert_eq!(&reply, b"HELLO");
    client.shutdown().await.unwrap();
    assert_eq!(client.read(&mut reply).await.unwrap(), 0);
}
