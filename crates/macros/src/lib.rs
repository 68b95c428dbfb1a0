//! The attribute macros of annulus. Programs use them as `annulus::main` and `annulus::test`, with
//! the feature `macros`. They are documented in `annulus`, because this crate cannot depend on it:
//! that would build `annulus` a second time, for the host.
//!
//! Both leave the function unchanged and wrap it in one that is not `async` and runs it. Types are
//! therefore inferred, and errors reported, as in any other `async fn`, and only the tokens before
//! the body need to be parsed.

use proc_macro::{Delimiter, Group, Span, TokenStream, TokenTree};

/// Runs an `async fn main` with `annulus::run`. Documented as `annulus::main`.
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, function: TokenStream) -> TokenStream {
    expanded("main", "", &arguments, function)
}

/// Turns an `async fn` into a test. Documented as `annulus::test`.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, function: TokenStream) -> TokenStream {
    expanded("test", "#[::core::prelude::v1::test]", &arguments, function)
}

/// Returns a function that runs the given one, or a compile error in its place.
fn expanded(
    name: &str,
    attribute: &str,
    arguments: &TokenStream,
    function: TokenStream,
) -> TokenStream {
    let runs = if arguments.is_empty() {
        running(name, attribute, function)
    } else {
        let text = format!(
            "#[annulus::{name}] takes no arguments; for settings use annulus::Runtime::builder()"
        );
        Err((Span::call_site(), text))
    };
    runs.unwrap_or_else(|(span, text)| error(span, &text))
}

/// Turns `async fn f() -> T { … }` into `fn f() -> T { async fn f() -> T { … } ::annulus::run(f())
/// }`. Attributes and visibility move to the outer function.
fn running(
    name: &str,
    attribute: &str,
    function: TokenStream,
) -> Result<TokenStream, (Span, String)> {
    let tokens: Vec<TokenTree> = function.into_iter().collect();
    let refused = |at: Option<&TokenTree>, why: &str| {
        let span = at.map_or_else(Span::call_site, TokenTree::span);
        Err((span, format!("#[annulus::{name}] {why}")))
    };
    let is = |token: &TokenTree, word: &str| token.to_string() == word;
    let Some(keyword) = tokens.iter().position(|token| is(token, "fn")) else {
        return refused(tokens.first(), "runs a function: write it above an `async fn`");
    };
    let Some(start) = keyword.checked_sub(1).filter(|&at| is(&tokens[at], "async")) else {
        return refused(tokens.get(keyword), "runs an asynchronous function: write `async fn`");
    };
    let inner = &tokens[start..];
    let [_, _, called, parameters, rest @ ..] = inner else {
        return refused(tokens.last(), "runs a function with a name and a body");
    };
    match parameters {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {
            if !group.stream().is_empty() {
                return refused(Some(parameters), "runs a function without parameters");
            }
        }
        other => return refused(Some(other), "runs a function that is not generic"),
    }
    let Some((TokenTree::Group(body), returned)) = rest.split_last() else {
        return refused(tokens.last(), "runs a function with a body");
    };
    let run: TokenStream = format!("::annulus::run({called}())")
        .parse()
        .expect("the call of `annulus::run` does not parse");
    let mut block = Group::new(Delimiter::Brace, inner.iter().cloned().chain(run).collect());
    block.set_span(body.span());
    let attribute: TokenStream = attribute.parse().expect("the attribute does not parse");
    let head = tokens[..start].iter().chain(&inner[1..4]).chain(returned).cloned();
    Ok(attribute.into_iter().chain(head).chain([TokenTree::Group(block)]).collect())
}

/// Returns a `compile_error!` with this text, reported at this span.
fn error(span: Span, text: &str) -> TokenStream {
    let call: TokenStream = format!("::core::compile_error!({text:?});")
        .parse()
        .expect("the `compile_error!` does not parse");
    let placed = call.into_iter().map(|mut token| {
        token.set_span(span);
        token
    });
    placed.collect()
}
