//! Hand-written HTTP/2 frames.

/// Connection preface, sent before the client's first frame.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames (RFC 9113 §6).
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;

/// Identifiers of settings (RFC 9113 §6.5.2).
pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;

/// Encodes a frame: length, type, flags, stream, payload (RFC 9113 §4.1).
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Encodes a setting for a SETTINGS frame.
pub(crate) fn setting(name: u16, value: u32) -> Vec<u8> {
    [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// Encodes a complete GET of `http://localhost`.
pub(crate) fn get(stream: u32, path: &str) -> Vec<u8> {
    get_with(stream, path, &[])
}

/// Encodes a complete GET with these fields as literals. The pseudo-header fields use the static table (RFC 7541, appendix A).
pub(crate) fn get_with(stream: u32, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| {
        assert!(text.len() < 127, "a longer length takes several bytes");
        [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
    };
    let mut block = [
        &[0x82, 0x86, 0x04],
        &text(path)[..],
        &[0x01],
        &text("localhost"),
    ]
    .concat();
    for (name, value) in fields {
        block.extend([&[0x00], &text(name)[..], &text(value)].concat());
    }
    // END_STREAM and END_HEADERS.
    frame(HEADERS, 0x5, stream, &block)
}

/// Splits `bytes` into frames, each with its type and payload.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = bytes {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else {
            break;
        };
        frames.push((*kind, payload.to_vec()));
        bytes = rest;
    }
    frames
}
