//! Public types without an example: of what the crate's public modules define or re-export, each struct, enum and trait
//! needs a block of code in its own documentation, in that of its methods, or in that of the module that shows it, if the
//! block names the type.
//!
//! A type that is re-exported from another crate of the workspace needs one, too; there the block may stand at the re-export.
//! Types that a macro makes are not seen. Futures and errors need none: the function that returns one has the example. Neither
//! does what a foreign crate defines.
//! `xtask/style/examples.txt` excepts further types, each with a reason.

use std::fs;

use syn::punctuated::Punctuated;

use super::Finding;
use super::modules::Modules;
use super::tree::Tree;
use crate::step::{Failure, root};

/// Traits whose types need no example.
const EXEMPT: [&str; 2] = ["Future", "Error"];

/// What the names of the workspace's crates begin with.
const WORKSPACE: &str = "annulus_";

/// The types that need no example, by their path in the crate, with the reason.
pub(super) fn exceptions() -> Result<Vec<(String, String)>, Failure> {
    let failure = |why: String| Failure::Failed(format!("xtask/style/examples.txt: {why}"));
    let path = root().join("xtask").join("style").join("examples.txt");
    let text = fs::read_to_string(path).map_err(|error| failure(error.to_string()))?;
    parse(&text).map_err(failure)
}

fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let exception = |line: &str| {
        let fields = line.split_once(' ').filter(|(_, reason)| !reason.trim().is_empty());
        let fields = fields.map(|(name, reason)| (name.to_owned(), reason.trim().to_owned()));
        fields.ok_or_else(|| format!("'{line}' is not: TYPE REASON"))
    };
    lines.map(exception).collect()
}

/// The public types without an example. An exception that is not needed is a finding, too.
pub(super) fn find(
    tree: &Tree,
    modules: &Modules,
    exceptions: &[(String, String)],
) -> Vec<Finding> {
    let mut search = Search { tree, modules, types: Vec::new() };
    search.module(&[]);
    let mut lacking = search.types;
    lacking.sort_by(|a, b| a.path.cmp(&b.path));
    lacking.dedup_by(|a, b| a.path == b.path);
    let unneeded = exceptions
        .iter()
        .filter(|(name, _)| !lacking.iter().any(|lack| lack.path == *name))
        .map(|(name, _)| {
            let text = format!("{name} is public and has an example, or is not there: take it out");
            Finding::new("xtask/style/examples.txt", 1, text)
        });
    let unneeded: Vec<Finding> = unneeded.collect();
    let is_needed = |lack: &Lacking| !exceptions.iter().any(|(name, _)| lack.path == *name);
    let lacking = lacking.into_iter().filter(is_needed);
    let found = lacking.map(|lack| {
        Finding::new(&lack.file, lack.line, format!("{} has no example in its docs", lack.path))
    });
    found.chain(unneeded).collect()
}

/// A public type without an example.
struct Lacking {
    /// Its path in the crate, such as `net::TcpStream`.
    path: String,
    file: String,
    line: usize,
}

struct Search<'a> {
    tree: &'a Tree,
    modules: &'a Modules,
    types: Vec<Lacking>,
}

impl Search<'_> {
    /// Looks at what a public module shows, and at its public modules.
    fn module(&mut self, place: &[String]) {
        let Some(path) = self.modules.file_at(place) else { return };
        let Some(parsed) = self.parsed(path) else { return };
        let docs = docs(&parsed.attrs);
        for item in &parsed.items {
            match item {
                syn::Item::Mod(child) if is_shown(&child.vis, &child.attrs) => {
                    self.module(&below(place, &child.ident.to_string()));
                }
                syn::Item::Use(import) if is_shown(&import.vis, &import.attrs) => {
                    let docs = format!("{docs}\n{}", self::docs(&import.attrs));
                    let mut names = Vec::new();
                    leaves(&import.tree, &mut Vec::new(), &mut names);
                    for (shown, path) in names {
                        self.exported(place, &docs, &shown, &path);
                    }
                }
                item => {
                    if let Some(named) = public_type(item) {
                        self.judge(place, &docs, &named.to_string(), path, &named.to_string());
                    }
                }
            }
        }
    }

    /// Looks at a name that a module shows under another name or its own.
    fn exported(&mut self, place: &[String], docs: &str, shown: &str, path: &[String]) {
        let Some(name) = path.last() else { return };
        if let Some(file) = self.modules.definition(place, path) {
            return self.judge(place, docs, shown, file, name);
        }
        for file in sources(self.tree, &path[0], name) {
            self.judge(place, docs, shown, file, name);
        }
    }

    /// Notes the type if a file defines it without an example.
    fn judge(&mut self, place: &[String], docs: &str, shown: &str, file: &str, name: &str) {
        let Some(parsed) = self.parsed(file) else { return };
        let named = |item: &&syn::Item| public_type(item).is_some_and(|ident| ident == name);
        let Some(item) = parsed.items.iter().find(named) else { return };
        if is_exempt(&parsed.items, name)
            || has_example(&parsed.items, item, name)
            || code(docs).any(|line| has_word(line, shown))
        {
            return;
        }
        let line = public_type(item).map_or(1, |ident| ident.span().start().line);
        let path = below(place, shown).join("::");
        self.types.push(Lacking { path, file: file.to_owned(), line });
    }

    fn parsed(&self, path: &str) -> Option<syn::File> {
        syn::parse_file(&self.tree.file(path)?.text).ok()
    }
}

/// The sources of another crate of the workspace that mention a name; which of them define a type is for the caller to see.
fn sources<'a>(tree: &'a Tree, of: &str, name: &str) -> Vec<&'a str> {
    let Some(of) = of.strip_prefix(WORKSPACE) else { return Vec::new() };
    let directory = format!("crates/{of}/src/");
    let sources = tree.files.iter().filter(|file| {
        file.is_rust() && file.path.starts_with(&directory) && file.text.contains(name)
    });
    sources.map(|file| file.path.as_str()).collect()
}

fn below(place: &[String], name: &str) -> Vec<String> {
    [place, &[name.to_owned()]].concat()
}

/// The names that a `use` brings, each with its path.
fn leaves(tree: &syn::UseTree, path: &mut Vec<String>, names: &mut Vec<(String, Vec<String>)>) {
    let mut leaf = |name: &syn::Ident, shown: &syn::Ident| {
        names.push((shown.to_string(), below(path, &name.to_string())));
    };
    match tree {
        syn::UseTree::Name(name) => leaf(&name.ident, &name.ident),
        syn::UseTree::Rename(name) => leaf(&name.ident, &name.rename),
        syn::UseTree::Group(group) => {
            group.items.iter().for_each(|item| leaves(item, path, names));
        }
        syn::UseTree::Path(inner) => {
            path.push(inner.ident.to_string());
            leaves(&inner.tree, path, names);
            path.pop();
        }
        syn::UseTree::Glob(_) => {}
    }
}

/// The name of a struct, an enum or a trait that is public and documented.
fn public_type(item: &syn::Item) -> Option<&syn::Ident> {
    let (visibility, attributes, ident) = match item {
        syn::Item::Struct(item) => (&item.vis, &item.attrs, &item.ident),
        syn::Item::Enum(item) => (&item.vis, &item.attrs, &item.ident),
        syn::Item::Trait(item) => (&item.vis, &item.attrs, &item.ident),
        _ => return None,
    };
    is_shown(visibility, attributes).then_some(ident)
}

/// Public, and not hidden in the documentation.
fn is_shown(visibility: &syn::Visibility, attributes: &[syn::Attribute]) -> bool {
    let is_hidden = |attribute: &syn::Attribute| {
        let idents = Punctuated::<syn::Path, syn::Token![,]>::parse_terminated;
        attribute.path().is_ident("doc")
            && attribute
                .parse_args_with(idents)
                .is_ok_and(|paths| paths.iter().any(|path| path.is_ident("hidden")))
    };
    matches!(visibility, syn::Visibility::Public(_)) && !attributes.iter().any(is_hidden)
}

/// Whether a type implements a trait whose types need no example.
fn is_exempt(items: &[syn::Item], name: &str) -> bool {
    impls(items, name).any(|block| {
        let of = block.trait_.as_ref().and_then(|(path, _)| path.segments.last());
        of.is_some_and(|of| EXEMPT.iter().any(|exempt| of.ident == exempt))
    })
}

/// Whether an example stands at the type or at one of its methods.
fn has_example(items: &[syn::Item], item: &syn::Item, name: &str) -> bool {
    let (attributes, methods): (_, &[syn::TraitItem]) = match item {
        syn::Item::Struct(item) => (&item.attrs, &[]),
        syn::Item::Enum(item) => (&item.attrs, &[]),
        syn::Item::Trait(item) => (&item.attrs, &item.items),
        _ => return false,
    };
    let of_trait = methods.iter().any(|item| match item {
        syn::TraitItem::Fn(method) => has_code(&method.attrs),
        _ => false,
    });
    let of_impl = impls(items, name).filter(|block| block.trait_.is_none()).any(|block| {
        block.items.iter().any(|item| match item {
            syn::ImplItem::Fn(method) => {
                is_shown(&method.vis, &method.attrs) && has_code(&method.attrs)
            }
            _ => false,
        })
    });
    has_code(attributes) || of_trait || of_impl
}

/// The `impl` blocks of a type.
fn impls<'a>(items: &'a [syn::Item], name: &'a str) -> impl Iterator<Item = &'a syn::ItemImpl> {
    items.iter().filter_map(move |item| match item {
        syn::Item::Impl(block) => match &*block.self_ty {
            syn::Type::Path(of) if of.path.segments.last()?.ident == name => Some(block),
            _ => None,
        },
        _ => None,
    })
}

fn has_code(attributes: &[syn::Attribute]) -> bool {
    code(&docs(attributes)).next().is_some()
}

/// The text of doc comments.
fn docs(attributes: &[syn::Attribute]) -> String {
    let line = |attribute: &syn::Attribute| match &attribute.meta {
        syn::Meta::NameValue(doc) if doc.path.is_ident("doc") => match &doc.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    };
    attributes.iter().filter_map(line).collect::<Vec<_>>().join("\n")
}

/// The lines of the blocks of Rust code in documentation.
fn code(docs: &str) -> impl Iterator<Item = &str> {
    let (mut is_block, mut is_rust) = (false, false);
    docs.lines().filter(move |line| {
        let Some(language) = line.trim_start().strip_prefix("```") else {
            return is_block && is_rust;
        };
        is_block = !is_block;
        is_rust = is_block
            && !["text", "toml", "sh", "console", "compile_fail"]
                .iter()
                .any(|other| language.starts_with(other));
        false
    })
}

/// Whether a line has this word.
fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "/// ```\n/// f();\n/// ```\n";

    fn lacking(files: &[(&str, &str)], exceptions: &[(String, String)]) -> Vec<String> {
        let tree = Tree::of(files);
        let modules = Modules::read(&tree, "src/lib.rs").unwrap();
        find(&tree, &modules, exceptions).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_public_modules_show_needs_an_example() {
        let lib = "pub mod net; mod inner; pub use inner::Shown; pub use other_crate::Foreign;\n\
                   #[doc(hidden)] pub mod fuzzing;";
        let net = "mod stream; pub use stream::{Stream, Old as New}; pub(crate) use stream::Own;\n\
                   /// Doc.\npub trait Lent {}";
        let stream = format!(
            "pub struct Stream;\nimpl Stream {{\n{EXAMPLE}pub fn f() {{}} }}\n\
             pub enum Old {{}}\npub struct Own;"
        );
        let inner = "#[doc(hidden)] pub struct Hidden;\n/// Text only.\npub struct Shown;";
        let files = [
            ("src/lib.rs", lib),
            ("src/net/mod.rs", net),
            ("src/net/stream.rs", &stream),
            ("src/inner.rs", inner),
            ("src/fuzzing.rs", "pub struct Corpus;"),
        ];
        assert_eq!(
            lacking(&files, &[]),
            [
                "src/inner.rs:3: Shown has no example in its docs",
                "src/net/mod.rs:3: net::Lent has no example in its docs",
                "src/net/stream.rs:7: net::New has no example in its docs",
            ]
        );
    }

    #[test]
    fn an_example_of_the_module_counts_for_the_types_that_it_names() {
        let text = "//! ```\n//! let (sender, _) = channel::<Sender>();\n//! ```\n\
                    //! ```text\n//! Receiver\n//! ```\n\
                    pub struct Sender; pub struct Receiver; pub struct Send;";
        let found = lacking(&[("src/lib.rs", text)], &[]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("Receiver has no") && found[1].contains("Send has no"));
    }

    #[test]
    fn types_of_the_workspaces_other_crates_need_one_at_the_re_export() {
        let lib = format!(
            "pub use annulus_inner::{{Bare, Shown}}; pub use other_crate::Foreign;\n{}pub use annulus_inner::Used;",
            EXAMPLE.replace("f()", "Used")
        );
        let inner = format!("pub struct Bare; {EXAMPLE}pub struct Shown; pub struct Used;");
        let files = [("src/lib.rs", &*lib), ("crates/inner/src/types.rs", &*inner)];
        let found = lacking(&files, &[]);
        assert_eq!(found, ["crates/inner/src/types.rs:1: Bare has no example in its docs"]);
    }

    #[test]
    fn futures_errors_and_exceptions_need_none() {
        let text = "pub struct Sleep; impl std::future::Future for Sleep {}\n\
                    pub enum Failed {} impl Error for Failed {}\n\
                    pub struct Plain;";
        let because = |name: &str| (name.to_owned(), "because".to_owned());
        assert_eq!(lacking(&[("src/lib.rs", text)], &[because("Plain")]), [""; 0]);
        let stale = lacking(&[("src/lib.rs", text)], &[because("Plain"), because("Gone")]);
        assert_eq!(stale.len(), 1);
        assert!(stale[0].contains("Gone is public and has an example"), "{stale:?}");
    }

    #[test]
    fn an_exception_has_a_reason() {
        assert_eq!(
            parse("# text\nnet::A it is B\n").unwrap(),
            [("net::A".into(), "it is B".into())]
        );
        assert!(parse("net::A\n").unwrap_err().contains("TYPE REASON"));
    }
}
