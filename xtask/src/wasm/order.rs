//! The order of a module's functions, which means nothing to who runs it: it is sent compressed, and a compression finds
//! what it has seen shortly before. Functions that end alike are put beside each other, and of those that are the same one
//! is kept: what generic code does is often the same for several types. What nobody calls is left out.

use std::collections::BTreeSet;
use std::convert::Infallible;

use wasm_encoder::reencode::{Error, Reencode, utils};
use wasm_encoder::{CodeSection, ExportSection, FunctionSection, Module};
use wasmparser::{
    BinaryReader, CodeSectionReader, Export, ExternalKind, FunctionBody, FunctionSectionReader, Parser, Payload,
    TypeRef,
};

use crate::Result;

/// The same module with its functions in that order, and of those that it exports the ones that `is_taken` names.
pub(crate) fn order(module: &[u8], is_taken: impl Fn(&str) -> bool) -> Result<Vec<u8>> {
    let mut module = module.to_vec();
    loop {
        let mut order = Order::of(&module, &is_taken)?;
        let mut ordered = Module::new();
        order.parse_core_module(&mut ordered, Parser::new(0), &module)?;
        module = ordered.finish();
        // Functions that called different ones may be the same by now.
        if order.old.len() == order.new.len() {
            return Ok(module);
        }
    }
}

/// Which function goes where. Functions that are imported come first, and stay where they are.
struct Order {
    imported: u32,
    /// The functions that are not imported and are kept, in their new order.
    old: Vec<u32>,
    /// The new places of all that are not imported, in their old order.
    new: Vec<u32>,
    /// The exports that nobody takes.
    left: BTreeSet<String>,
}

impl Order {
    fn of(module: &[u8], is_taken: impl Fn(&str) -> bool) -> Result<Self> {
        let mut imported = 0;
        let mut left = BTreeSet::new();
        let (mut types, mut bodies): (Vec<u32>, Vec<&[u8]>) = (Vec::new(), Vec::new());
        for payload in Parser::new(0).parse_all(module) {
            match payload? {
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports() {
                        imported += u32::from(matches!(import?.ty, TypeRef::Func(_) | TypeRef::FuncExact(_)));
                    }
                }
                Payload::FunctionSection(functions) => {
                    types = functions.into_iter().collect::<std::result::Result<_, _>>()?;
                }
                Payload::ExportSection(exports) => {
                    for export in exports {
                        let export = export?;
                        if export.kind == ExternalKind::Func && !is_taken(export.name) {
                            left.insert(export.name.to_owned());
                        }
                    }
                }
                Payload::CodeSectionEntry(body) => bodies.push(body.as_bytes()),
                _ => {}
            }
        }
        let called = called(module, imported, &bodies, &left)?;
        let mut functions: Vec<_> = (0..).zip(bodies.iter().zip(&types)).collect();
        functions.retain(|(at, _)| called.contains(&(imported + at)));
        functions
            .sort_by(|(_, (a, a_type)), (_, (b, b_type))| a.iter().rev().cmp(b.iter().rev()).then(a_type.cmp(b_type)));
        let (mut old, mut new) = (Vec::new(), vec![0; bodies.len()]);
        let mut last = None;
        for (at, function) in functions {
            if last != Some(function) {
                last = Some(function);
                old.push(at);
            }
            new[at as usize] = u32::try_from(old.len() - 1)?;
        }
        Ok(Self { imported, old, new, left })
    }
}

/// The functions that are called, or could be: from outside, by way of a table, at the start, or by another one of them.
fn called(module: &[u8], imported: u32, bodies: &[&[u8]], left: &BTreeSet<String>) -> Result<BTreeSet<u32>> {
    let mut calls = Calls { left, met: BTreeSet::new(), to_read: Vec::new() };
    calls.parse_core_module(&mut Module::new(), Parser::new(0), module)?;
    while let Some(function) = calls.to_read.pop() {
        if let Some(body) = function.checked_sub(imported).and_then(|own| bodies.get(own as usize)) {
            let body = FunctionBody::new(BinaryReader::new(body, 0));
            utils::parse_function_body(&mut calls, &mut CodeSection::new(), body)?;
        }
    }
    Ok(calls.met)
}

/// Notes the functions that it meets. Those in bodies it meets only once these are read one by one.
struct Calls<'a> {
    left: &'a BTreeSet<String>,
    met: BTreeSet<u32>,
    to_read: Vec<u32>,
}

impl Reencode for Calls<'_> {
    type Error = Infallible;

    fn function_index(&mut self, function: u32) -> Done<u32> {
        if self.met.insert(function) {
            self.to_read.push(function);
        }
        Ok(function)
    }

    fn parse_export(&mut self, to: &mut ExportSection, export: Export<'_>) -> Done {
        if self.left.contains(export.name) { Ok(()) } else { utils::parse_export(self, to, export) }
    }

    fn parse_code_section(&mut self, _: &mut CodeSection, _: CodeSectionReader<'_>) -> Done {
        Ok(())
    }
}

type Done<T = ()> = std::result::Result<T, Error<Infallible>>;

impl Reencode for Order {
    type Error = Infallible;

    fn function_index(&mut self, old: u32) -> Done<u32> {
        let own = old.checked_sub(self.imported).and_then(|own| self.new.get(own as usize));
        Ok(own.map_or(old, |new| self.imported + new))
    }

    fn parse_export(&mut self, to: &mut ExportSection, export: Export<'_>) -> Done {
        if self.left.contains(export.name) { Ok(()) } else { utils::parse_export(self, to, export) }
    }

    fn parse_function_section(&mut self, to: &mut FunctionSection, from: FunctionSectionReader<'_>) -> Done {
        let types = from.into_iter().collect::<std::result::Result<Vec<u32>, _>>()?;
        for old in &self.old {
            to.function(types[*old as usize]);
        }
        Ok(())
    }

    fn parse_code_section(&mut self, to: &mut CodeSection, from: CodeSectionReader<'_>) -> Done {
        let bodies = from.into_iter().collect::<std::result::Result<Vec<FunctionBody<'_>>, _>>()?;
        for old in self.old.clone() {
            utils::parse_function_body(self, to, bodies[old as usize].clone())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use wasm_encoder::{
        ConstExpr, ElementSection, Elements, EntityType, ExportKind, Function, ImportSection, RefType, TableSection,
        TableType, TypeSection, ValType,
    };
    use wasmparser::ElementItems;

    use super::*;

    /// An imported function, and `a`, `b` and `c`, which end in an order of their own; `c` calls the three others.
    fn module() -> Vec<u8> {
        let (mut types, mut imports, mut functions) =
            (TypeSection::new(), ImportSection::new(), FunctionSection::new());
        types.ty().function([], []);
        imports.import("env", "imported", EntityType::Function(0));
        let (mut exports, mut code) = (ExportSection::new(), CodeSection::new());
        for (name, constant, calls) in [("a", 300, &[][..]), ("b", 200, &[]), ("c", 100, &[1, 0, 2])] {
            exports.export(name, ExportKind::Func, functions.len() + 1);
            functions.function(0);
            let mut body = Function::new([]);
            for call in calls {
                body.instructions().call(*call);
            }
            body.instructions().i32_const(constant).drop().end();
            code.function(&body);
        }
        let mut tables = TableSection::new();
        let (element_type, table64, shared) = (RefType::FUNCREF, false, false);
        tables.table(TableType { element_type, minimum: 4, maximum: None, table64, shared });
        let mut elements = ElementSection::new();
        elements.active(None, &ConstExpr::i32_const(0), Elements::Functions([3, 0, 2, 1][..].into()));
        let mut module = Module::new();
        module.section(&types).section(&imports).section(&functions).section(&tables).section(&exports);
        module.section(&elements).section(&code);
        module.finish()
    }

    /// The number of each exported function, the functions in the table, and the bodies.
    fn read(module: &[u8]) -> (BTreeMap<String, u32>, Vec<u32>, Vec<Vec<u8>>) {
        let (mut exported, mut table, mut bodies) = (BTreeMap::new(), Vec::new(), Vec::new());
        for payload in Parser::new(0).parse_all(module) {
            match payload.unwrap() {
                Payload::ExportSection(exports) => exported.extend(exports.into_iter().map(|export| {
                    let export = export.unwrap();
                    assert_eq!(export.kind, ExternalKind::Func);
                    (export.name.to_owned(), export.index)
                })),
                Payload::ElementSection(elements) => {
                    for element in elements {
                        let ElementItems::Functions(items) = element.unwrap().items else { panic!("no functions") };
                        table.extend(items.into_iter().map(std::result::Result::unwrap));
                    }
                }
                Payload::CodeSectionEntry(body) => bodies.push(body.as_bytes().to_vec()),
                _ => {}
            }
        }
        (exported, table, bodies)
    }

    #[test]
    fn whoever_names_a_function_names_the_same_one_afterwards() {
        let ordered = order(&module(), |_| true).unwrap();
        let (exported, table, bodies) = read(&ordered);
        let [a, b, c] = ["a", "b", "c"].map(|name| exported[name]);
        assert_ne!([a, b, c], [1, 2, 3], "nothing was put in order");
        assert_eq!(table, [c, 0, b, a]);
        let constants: BTreeMap<u32, u8> = (1..).zip(bodies.iter().map(|body| body[body.len() - 4])).collect();
        // The lower seven bits of 300, 200 and 100.
        assert_eq!([a, b, c].map(|place| constants[&place] & 0x7f), [44, 72, 100]);
        let calls = [0x10, u8::try_from(a).unwrap(), 0x10, 0, 0x10, u8::try_from(b).unwrap()];
        assert_eq!(bodies[c as usize - 1][1..7], calls);
        let ends: Vec<Vec<u8>> = bodies.iter().map(|body| body.iter().rev().copied().collect()).collect();
        assert!(ends.is_sorted(), "{ends:?}");
    }

    /// The first two do the same; the next two each call one of those, the last one is of another type.
    fn alike() -> Vec<u8> {
        let (mut types, mut functions) = (TypeSection::new(), FunctionSection::new());
        types.ty().function([], []);
        types.ty().function([ValType::I32], []);
        let (mut exports, mut code) = (ExportSection::new(), CodeSection::new());
        for (name, its_type, call) in
            [("a", 0, None), ("b", 0, None), ("c", 0, Some(0)), ("d", 0, Some(1)), ("e", 1, None)]
        {
            exports.export(name, ExportKind::Func, functions.len());
            functions.function(its_type);
            let mut body = Function::new([]);
            if let Some(call) = call {
                body.instructions().call(call);
            }
            body.instructions().end();
            code.function(&body);
        }
        let mut module = Module::new();
        module.section(&types).section(&functions).section(&exports).section(&code);
        module.finish()
    }

    #[test]
    fn of_functions_that_are_the_same_one_is_kept_and_so_of_those_that_call_them() {
        let (exported, _, bodies) = read(&order(&alike(), |_| true).unwrap());
        let same: Vec<bool> =
            ["ab", "cd", "ac", "ae", "ce"].map(|pair| exported[&pair[..1]] == exported[&pair[1..]]).into();
        assert_eq!((same, bodies.len()), (vec![true, true, false, false, false], 3));
        assert_eq!(bodies[exported["c"] as usize][1..3], [0x10, u8::try_from(exported["a"]).unwrap()]);
    }

    #[test]
    fn what_nobody_takes_or_calls_is_left_out() {
        for (taken, kept) in [("c", 2), ("a", 1), ("e", 1)] {
            let (exported, _, bodies) = read(&order(&alike(), |export| export == taken).unwrap());
            assert_eq!((exported.into_keys().collect::<Vec<_>>(), bodies.len()), (vec![taken.to_owned()], kept));
        }
        // A table may be called by whoever has it.
        let (exported, table, bodies) = read(&order(&module(), |_| false).unwrap());
        assert_eq!((exported.len(), table.len(), bodies.len()), (0, 4, 3));
    }

    #[test]
    fn what_is_in_order_stays_as_it_is() {
        let ordered = order(&module(), |_| true).unwrap();
        assert_eq!(order(&ordered, |_| true).unwrap(), ordered);
        assert!(order(b"no module", |_| true).is_err());
    }
}
