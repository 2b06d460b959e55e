//! A parsed Rust file: its tokens without comments, and its functions.

use std::ops::RangeInclusive;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::visit::Visit;

/// Folders of test code. A conformance suite is a published test.
const TEST_FOLDERS: [&str; 5] = ["tests", "benches", "examples", "conformance", "test_util"];

/// A parsed file.
pub(crate) struct Source {
    /// Relative to the root, with slashes.
    pub(crate) path: String,
    /// `true` if its first line is a `//!` comment.
    pub(crate) has_purpose: bool,
    /// Number of lines.
    pub(crate) lines: usize,
    /// Its tokens, flattened.
    pub(crate) tokens: Vec<Token>,
    /// Its functions with a body.
    pub(crate) functions: Vec<Function>,
    /// Public names at its root.
    pub(crate) root_names: Vec<String>,
    /// `true` if all of it is test code.
    pub(crate) is_test: bool,
    test_lines: Vec<RangeInclusive<usize>>,
    test_modules: Vec<String>,
}

/// One token: an identifier, a literal, a punctuation character or a bracket.
pub(crate) struct Token {
    /// As written.
    pub(crate) text: String,
    /// From 1.
    pub(crate) line: usize,
}

/// A function with a body.
pub(crate) struct Function {
    /// Without its path.
    pub(crate) name: String,
    /// From `fn` to the closing brace.
    pub(crate) lines: RangeInclusive<usize>,
}

impl Source {
    /// Parses a file.
    pub(crate) fn parse(path: &str, text: &str) -> Self {
        let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut found = Found::default();
        found.visit_file(&file);
        let mut tokens = Vec::new();
        flatten(text.parse().unwrap_or_else(|error| panic!("{path}: {error}")), &mut tokens);
        let in_tests = |part: &str| path.starts_with(&format!("{part}/")) || path.contains(&format!("/{part}/"));
        Self {
            path: path.to_owned(),
            has_purpose: text.starts_with("//! "),
            lines: text.lines().count(),
            tokens,
            functions: found.functions,
            root_names: file.items.iter().flat_map(public_names).collect(),
            is_test: TEST_FOLDERS.into_iter().any(in_tests),
            test_lines: found.test_lines,
            test_modules: found.test_modules,
        }
    }

    /// Marks the files that another file includes by `#[cfg(test)] mod name;`.
    pub(crate) fn mark_test_modules(sources: &mut [Self]) {
        let of = |source: &Self| {
            let (folder, file) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
            let stem = file.trim_end_matches(".rs");
            let base =
                if ["lib", "main", "mod"].contains(&stem) { folder.to_owned() } else { format!("{folder}/{stem}") };
            source.test_modules.iter().map(|name| format!("{base}/{name}")).collect::<Vec<_>>()
        };
        let modules: Vec<String> = sources.iter().flat_map(of).collect();
        let within = |path: &str, module: &str| {
            path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        for source in sources {
            source.is_test |= modules.iter().any(|module| within(&source.path, module));
        }
    }

    /// Returns the places of a sequence of tokens outside test code.
    pub(crate) fn outside_tests<'a>(&'a self, pattern: &'a [&str]) -> impl Iterator<Item = String> + 'a {
        self.positions(pattern).filter(|&at| !self.is_test_line(self.tokens[at].line)).map(|at| self.place(at))
    }

    /// Returns the places of a sequence of tokens.
    pub(crate) fn anywhere<'a>(&'a self, pattern: &'a [&str]) -> impl Iterator<Item = String> + 'a {
        self.positions(pattern).map(|at| self.place(at))
    }

    /// Returns the indices of a sequence of tokens.
    pub(crate) fn positions<'a>(&'a self, pattern: &'a [&str]) -> impl Iterator<Item = usize> + 'a {
        let windows = self.tokens.windows(pattern.len()).enumerate();
        windows
            .filter(move |(_, window)| window.iter().zip(pattern).all(|(token, text)| token.text == *text))
            .map(|(at, _)| at)
    }

    /// Returns the tokens inside the bracket at this index.
    pub(crate) fn group(&self, open: usize) -> &[Token] {
        let mut depth = 0_usize;
        let end = self.tokens[open..].iter().position(|token| {
            match token.text.as_str() {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        &self.tokens[open + 1..open + end.unwrap_or(1)]
    }

    /// `path:line` of a token.
    pub(crate) fn place(&self, token: usize) -> String {
        format!("{}:{}", self.path, self.tokens[token].line)
    }

    fn is_test_line(&self, line: usize) -> bool {
        self.is_test || self.test_lines.iter().any(|lines| lines.contains(&line))
    }
}

/// Result of a walk through the syntax tree.
#[derive(Default)]
struct Found {
    functions: Vec<Function>,
    test_lines: Vec<RangeInclusive<usize>>,
    test_modules: Vec<String>,
}

impl Found {
    fn function(&mut self, attributes: &[syn::Attribute], signature: &syn::Signature, block: &syn::Block) {
        let lines = line(signature.fn_token.span)..=line(block.brace_token.span.close());
        if attributes.iter().any(is_test) {
            self.test_lines.push(lines.clone());
        }
        self.functions.push(Function { name: signature.ident.to_string(), lines });
    }
}

impl<'ast> Visit<'ast> for Found {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.attrs.iter().any(is_test) {
            match &item.content {
                Some((brace, _)) => self.test_lines.push(line(item.mod_token.span)..=line(brace.span.close())),
                None => self.test_modules.push(item.ident.to_string()),
            }
        }
        syn::visit::visit_item_mod(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.attrs.iter().any(is_test) {
            self.test_lines.push(line(item.impl_token.span)..=line(item.brace_token.span.close()));
        }
        syn::visit::visit_item_impl(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.attrs, &item.sig, block);
        }
        syn::visit::visit_trait_item_fn(self, item);
    }
}

/// `#[cfg(test)]`, `#[test]`, `#[tokio::test]`.
fn is_test(attribute: &syn::Attribute) -> bool {
    let name = attribute.path().segments.last().map(|segment| segment.ident.to_string());
    match (name.as_deref(), &attribute.meta) {
        (Some("test"), _) => true,
        (Some("cfg"), syn::Meta::List(list)) => list.tokens.to_string() == "test",
        _ => false,
    }
}

fn line(span: Span) -> usize {
    span.start().line
}

fn flatten(stream: TokenStream, into: &mut Vec<Token>) {
    let token = |text: &str, span: Span| Token { text: text.to_owned(), line: line(span) };
    for tree in stream {
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = brackets(group.delimiter());
                into.push(token(open, group.span_open()));
                flatten(group.stream(), into);
                into.push(token(close, group.span_close()));
            }
            leaf => into.push(token(&leaf.to_string(), leaf.span())),
        }
    }
}

fn brackets(delimiter: Delimiter) -> (&'static str, &'static str) {
    match delimiter {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::None => ("", ""),
    }
}

fn public_names(item: &syn::Item) -> Vec<String> {
    use syn::Item;
    let (visibility, name) = match item {
        Item::Const(item) => (&item.vis, &item.ident),
        Item::Enum(item) => (&item.vis, &item.ident),
        Item::Fn(item) => (&item.vis, &item.sig.ident),
        Item::Mod(item) => (&item.vis, &item.ident),
        Item::Static(item) => (&item.vis, &item.ident),
        Item::Struct(item) => (&item.vis, &item.ident),
        Item::Trait(item) => (&item.vis, &item.ident),
        Item::Type(item) => (&item.vis, &item.ident),
        Item::Use(item) if matches!(item.vis, syn::Visibility::Public(_)) => return leaves(&item.tree),
        Item::Macro(item) if item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export")) => {
            return item.ident.iter().map(ToString::to_string).collect();
        }
        _ => return Vec::new(),
    };
    if matches!(visibility, syn::Visibility::Public(_)) { vec![name.to_string()] } else { Vec::new() }
}

fn leaves(tree: &syn::UseTree) -> Vec<String> {
    match tree {
        syn::UseTree::Path(path) => leaves(&path.tree),
        syn::UseTree::Group(group) => group.items.iter().flat_map(leaves).collect(),
        syn::UseTree::Name(name) => vec![name.ident.to_string()],
        syn::UseTree::Rename(rename) => vec![rename.rename.to_string()],
        syn::UseTree::Glob(_) => vec!["*".to_owned()],
    }
}
