//! Files and functions that are too long.

use syn::visit::{self, Visit};

use super::finding;
use super::tree::Tree;

/// The maximum number of lines of a file.
const MAX_FILE_LINES: usize = 900;
/// The maximum number of lines of a function, from `fn` to its closing brace.
const MAX_FUNCTION_LINES: usize = 70;

/// Returns source files above the limit. Documents may be longer.
pub(super) fn files(tree: &Tree) -> Vec<String> {
    let sources = tree.files.iter().filter(|file| !file.is_markdown());
    let long = sources.filter_map(|file| {
        let lines = file.text.lines().count();
        let text = || format!("{lines} lines, {MAX_FILE_LINES} at most");
        (lines > MAX_FILE_LINES).then(|| finding(&file.path, 1, &text()))
    });
    long.collect()
}

/// Returns Rust functions above the limit, including tests.
pub(super) fn functions(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| file.is_rust()) {
        match syn::parse_file(&file.text) {
            Ok(parsed) => {
                let mut functions = FunctionSizes { path: &file.path, found: &mut found };
                functions.visit_file(&parsed);
            }
            Err(error) => {
                let line = error.span().start().line;
                found.push(finding(&file.path, line, &format!("cannot be parsed: {error}")));
            }
        }
    }
    found
}

struct FunctionSizes<'a> {
    path: &'a str,
    found: &'a mut Vec<String>,
}

impl FunctionSizes<'_> {
    fn measure(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let first = signature.fn_token.span.start().line;
        let lines = block.brace_token.span.close().end().line + 1 - first;
        if lines > MAX_FUNCTION_LINES {
            let text =
                format!("fn {} has {lines} lines, {MAX_FUNCTION_LINES} at most", signature.ident);
            self.found.push(finding(self.path, first, &text));
        }
    }
}

impl<'ast> Visit<'ast> for FunctionSizes<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.measure(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.measure(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.measure(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(lines: usize) -> String {
        "    f();\n".repeat(lines)
    }

    #[test]
    fn a_file_above_the_limit_is_found_and_a_document_is_not() {
        let (fits, long) = ("\n".repeat(MAX_FILE_LINES), "\n".repeat(MAX_FILE_LINES + 1));
        let tree = Tree::of(&[("a.rs", &fits), ("b.c", &long), ("c.md", &long)]);
        let found = files(&tree);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].to_string(), "b.c:1: 901 lines, 900 at most");
    }

    #[test]
    fn functions_of_every_kind_are_measured_from_fn_to_brace() {
        let fits = format!("/// Doc.\n#[inline]\nfn f() {{\n{}}}\n", body(MAX_FUNCTION_LINES - 2));
        let long = body(MAX_FUNCTION_LINES - 1);
        let text = format!(
            "{fits}fn g() {{\n{long}}}\n\
             impl A {{ fn h(&self) {{\n{long}}} }}\n\
             trait T {{ fn i(&self) {{\n{long}}} fn j(&self); }}\n\
             fn outer() {{ fn inner() {{\n{long}}} }}\n"
        );
        let found = functions(&Tree::of(&[("a.rs", &text)]));
        let names: Vec<String> = found.iter().map(ToString::to_string).collect();
        let expected = ["fn g has 71", "fn h has 71", "fn i has 71", "fn outer has 71", "fn inner"];
        assert_eq!(names.len(), expected.len(), "{names:?}");
        for (name, part) in names.iter().zip(expected) {
            assert!(name.contains(part), "{name}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_parsed_is_found() {
        let found = functions(&Tree::of(&[("a.rs", "fn f( {\n")]));
        assert!(found[0].to_string().starts_with("a.rs:1: cannot be parsed"), "{}", found[0]);
    }
}
