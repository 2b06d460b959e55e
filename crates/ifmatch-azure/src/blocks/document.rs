//! The document of Put Block List: ids of blocks in order, each with its source.

use crate::error::AzureError;
use crate::request::BlockId;
use crate::request::xml::{self, XmlVisitor, invalid};

/// Maximum number of blocks in a list.
const MAX_BLOCKS: usize = 50_000;

/// The source of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockSource {
    /// The committed blocks of the current version.
    Committed,
    /// The staged blocks.
    Uncommitted,
    /// The staged blocks, then the committed ones.
    Latest,
}

/// Parses a document.
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<(BlockSource, BlockId)>, AzureError> {
    let mut state = BlockListParser::default();
    xml::visit(bytes, &mut state)?;
    state.end()
}

/// The state of parsing a document.
#[derive(Default)]
struct BlockListParser {
    depth: usize,
    began: bool,
    from: Option<BlockSource>,
    id: String,
    blocks: Vec<(BlockSource, BlockId)>,
}

impl XmlVisitor for BlockListParser {
    fn open(&mut self, name: &[u8]) -> Result<(), AzureError> {
        match (self.depth, name) {
            (0, b"BlockList") if !self.began => self.began = true,
            (1, b"Committed") => self.from = Some(BlockSource::Committed),
            (1, b"Uncommitted") => self.from = Some(BlockSource::Uncommitted),
            (1, b"Latest") => self.from = Some(BlockSource::Latest),
            _ => {
                return Err(invalid(
                    "expected a BlockList with Committed, Uncommitted and Latest elements",
                ));
            }
        }
        self.depth += 1;
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), AzureError> {
        match self.depth {
            2 => self.id.push_str(text),
            _ if !text.trim().is_empty() => {
                return Err(invalid("unexpected text between elements"));
            }
            _ => {}
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), AzureError> {
        self.depth = self
            .depth
            .checked_sub(1)
            .ok_or_else(|| invalid("unbalanced elements"))?;
        let Some(from) = self.from.take() else {
            return Ok(());
        };
        let id = BlockId::from_base64(std::mem::take(&mut self.id).trim());
        let id = id.ok_or_else(|| not_a_list("a block id isn't the base64 of 1 to 64 bytes"))?;
        if self.blocks.len() == MAX_BLOCKS {
            let message = format!("the list has more than {MAX_BLOCKS} blocks");
            return Err(AzureError::bad_request("BlockListTooLong", message));
        }
        self.blocks.push((from, id));
        Ok(())
    }
}

impl BlockListParser {
    /// Returns the blocks of a complete document.
    fn end(self) -> Result<Vec<(BlockSource, BlockId)>, AzureError> {
        if self.began && self.depth == 0 {
            Ok(self.blocks)
        } else {
            Err(invalid("unexpected end"))
        }
    }
}

/// The error for a list with unknown or malformed block ids.
pub(super) fn not_a_list(why: &'static str) -> AzureError {
    AzureError::bad_request("InvalidBlockList", why)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(blocks: &[(BlockSource, BlockId)]) -> String {
        let block = |(from, id): &(BlockSource, BlockId)| {
            format!("<{from:?}>{}</{from:?}>", id.to_base64())
        };
        format!(
            "<BlockList>{}</BlockList>",
            blocks.iter().map(block).collect::<String>()
        )
    }

    fn read(text: &str) -> Option<Vec<(BlockSource, BlockId)>> {
        parse(text.as_bytes()).ok()
    }

    #[test]
    fn parses_documents_of_the_sdks() {
        let id = |text: &str| BlockId::from_base64(text).expect("an id");
        let expected = vec![
            (BlockSource::Latest, id("MDAw")),
            (BlockSource::Committed, id("MDAx")),
            (BlockSource::Uncommitted, id("MDAy")),
        ];
        let compact = "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?><BlockList><Latest>MDAw</Latest>\
                       <Committed>MDAx</Committed><Uncommitted>MDAy</Uncommitted></BlockList>";
        assert_eq!(read(compact), Some(expected.clone()));
        let spread = "\u{feff}<?xml version='1.0' encoding='utf-8'?>\n<!-- a comment -->\n<BlockList>\n  <Latest> MDAw </Latest>\r\n\
                      <Committed>MD<!-- -->Ax</Committed>\n<Uncommitted>MDAy</Uncommitted>\n</BlockList>\n";
        assert_eq!(read(spread), Some(expected));
        assert_eq!(read("<BlockList/>"), Some(Vec::new()));
    }

    fn source() -> impl Strategy<Value = BlockSource> {
        prop::sample::select(vec![
            BlockSource::Committed,
            BlockSource::Uncommitted,
            BlockSource::Latest,
        ])
    }

    fn id() -> impl Strategy<Value = BlockId> {
        let bytes = prop::collection::vec(any::<u8>(), 1..=64);
        bytes.prop_map(|bytes| BlockId::from_hex(&hex::encode(bytes)).expect("1 to 64 bytes"))
    }

    proptest! {
        #[test]
        fn documents_round_trip(blocks in prop::collection::vec((source(), id()), 0..12)) {
            prop_assert_eq!(read(&written(&blocks)), Some(blocks));
        }

        #[test]
        fn parsing_tokens_never_panics(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..12)) {
            let _ = read(&pieces.concat());
        }

        #[test]
        fn parsing_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }

    const PIECES: &[&str] = &[
        "<BlockList>",
        "</BlockList>",
        "<BlockList/>",
        "<Latest>",
        "</Latest>",
        "<Committed>",
        "</Committed>",
        "<Uncommitted>",
        "</Uncommitted>",
        "<Latest/>",
        "MDAw",
        "AA==",
        " ",
        "\n",
        "&amp;",
        "&a;",
        "&#65;",
        "<![CDATA[MDAw]]>",
        "<!-- x -->",
        "<!DOCTYPE a>",
        "<?x?>",
        "<",
        ">",
        "\"",
        "a=\"b\"",
        "\u{0}",
    ];
}
