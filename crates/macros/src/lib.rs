//! The attributes of annulus: programs use them as `annulus::main` and `annulus::test`, by its feature `macros`.
//!
//! Both leave the function as it is, and put it into one that is not `async` and runs it. So types are inferred and errors are shown as in
//! any `async fn`, and nothing needs to be parsed but the tokens in front of the body.

use proc_macro::{Delimiter, Group, Span, TokenStream, TokenTree};

/// Runs an `async fn main` by [`annulus::run`](https://docs.rs/annulus/latest/annulus/fn.run.html).
///
/// ```
/// #[annulus::main]
/// async fn main() -> std::io::Result<()> {
///     annulus::time::sleep(std::time::Duration::from_millis(1)).await;
///     Ok(())
/// }
/// ```
///
/// The function may have any name, visibility and return type, and takes no parameters. Settings of the runtime are those of
/// `Runtime::builder`, which this does not replace. The crate must be known by its name, `annulus`.
///
/// ```compile_fail
/// #[annulus::main]
/// fn main() {} // It is not `async`.
/// ```
///
/// ```compile_fail
/// #[annulus::main(threads = 2)] // It has no settings.
/// async fn main() {}
/// ```
///
/// ```compile_fail
/// #[annulus::main]
/// async fn main(arguments: Vec<String>) {} // Nothing passes them.
/// ```
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, function: TokenStream) -> TokenStream {
    expanded("main", "", &arguments, function)
}

/// Makes a test of an `async fn`, which [`annulus::run`](https://docs.rs/annulus/latest/annulus/fn.run.html) runs: on io_uring, or on epoll if
/// that is blocked. The variable `ANNULUS_DRIVER` demands one of both.
///
/// ```
/// #[annulus::test]
/// async fn bytes_come_back() -> std::io::Result<()> {
///     let (mut one, mut two) = annulus::net::UnixStream::pair()?;
///     one.send("bytes").await?;
///     assert_eq!(&*two.recv_exact(5).await?, b"bytes");
///     Ok(())
/// }
/// ```
///
/// Other attributes of tests, such as `#[ignore]` and `#[should_panic]`, stand beside it.
///
/// ```compile_fail
/// #[annulus::test]
/// fn test() {} // It is not `async`.
/// ```
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, function: TokenStream) -> TokenStream {
    expanded("test", "#[::core::prelude::v1::test]", &arguments, function)
}

/// The function that runs this one, or an error in its place.
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

/// `async fn f() -> T { … }` as `fn f() -> T { async fn f() -> T { … } ::annulus::run(f()) }`, with what stands in front of `async` on
/// the outer function.
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
    let run: TokenStream = format!("::annulus::run({called}())").parse().expect("an expression");
    let mut block = Group::new(Delimiter::Brace, inner.iter().cloned().chain(run).collect());
    block.set_span(body.span());
    let attribute: TokenStream = attribute.parse().expect("an attribute");
    let head = tokens[..start].iter().chain(&inner[1..4]).chain(returned).cloned();
    Ok(attribute.into_iter().chain(head).chain([TokenTree::Group(block)]).collect())
}

/// `compile_error!` with this text, at this place.
fn error(span: Span, text: &str) -> TokenStream {
    let call: TokenStream =
        format!("::core::compile_error!({text:?});").parse().expect("a call of a macro");
    let placed = call.into_iter().map(|mut token| {
        token.set_span(span);
        token
    });
    placed.collect()
}
