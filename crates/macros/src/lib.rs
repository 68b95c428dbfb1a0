//! The attribute macros of annulus. Programs use them as `annulus::main` and `annulus::test`, with
//! the feature `macros`. They are documented in `annulus`, because this crate cannot depend on it:
//! that would build `annulus` a second time, for the host.
//!
//! Both leave the function unchanged and wrap it in one that is not `async` and runs it. Types are
//! therefore inferred, and errors reported, as in any other `async fn`, and only the tokens before
//! the body need to be parsed.

use proc_macro::{Delimiter, Group, Ident, Punct, Spacing, Span, TokenStream, TokenTree};

/// Runs an `async fn main` with `annulus::run`. Documented as `annulus::main`.
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, function: TokenStream) -> TokenStream {
    expanded("main", "", arguments, function)
}

/// Turns an `async fn` into a test. Documented as `annulus::test`.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, function: TokenStream) -> TokenStream {
    expanded("test", "#[::core::prelude::v1::test]", arguments, function)
}

/// Returns a function that runs the given one, or a compile error in its place.
fn expanded(
    name: &str,
    attribute: &str,
    arguments: TokenStream,
    function: TokenStream,
) -> TokenStream {
    let runs = Settings::parse(name, arguments)
        .and_then(|settings| running(name, attribute, &settings, function));
    runs.unwrap_or_else(|(span, text)| error(span, &text))
}

/// Where a macro cannot be expanded, and why.
type Refusal = (Span, String);

/// The arguments of an attribute: runtime settings, such as `task_budget = 64`. Each is a
/// method of `annulus::Builder`, so this crate need not know them.
#[derive(Default)]
struct Settings {
    methods: Vec<(Ident, TokenStream)>,
    /// Whether a test runs on a simulated kernel, in virtual time.
    start_paused: bool,
}

impl Settings {
    fn parse(name: &str, arguments: TokenStream) -> Result<Self, Refusal> {
        let mut settings = Self::default();
        let tokens: Vec<TokenTree> = arguments.into_iter().collect();
        let is =
            |token: &TokenTree, sign| matches!(token, TokenTree::Punct(it) if it.as_char() == sign);
        for setting in tokens.split(|token| is(token, ',')) {
            match setting {
                [] => {}
                [TokenTree::Ident(method), equals, value @ ..]
                    if is(equals, '=') && !value.is_empty() =>
                {
                    let value: TokenStream = value.iter().cloned().collect();
                    if name == "test" && method.to_string() == "start_paused" {
                        settings.start_paused = match &*value.to_string() {
                            "true" => true,
                            "false" => false,
                            _ => {
                                let text = "start_paused is either true or false";
                                return Err((method.span(), text.to_owned()));
                            }
                        };
                    } else {
                        settings.methods.push((method.clone(), value));
                    }
                }
                [wrong, ..] => {
                    let text = format!(
                        "#[annulus::{name}] takes settings of annulus::Builder, such as `task_budget = 64`"
                    );
                    return Err((wrong.span(), text));
                }
            }
        }
        Ok(settings)
    }

    /// Returns a call that runs a future with these settings.
    fn call(&self, future: &str) -> TokenStream {
        let parse = |text: &str| -> TokenStream {
            text.parse().unwrap_or_else(|error| panic!("{text} does not parse: {error}"))
        };
        if self.methods.is_empty() && !self.start_paused {
            return parse(&format!("::annulus::run({future})"));
        }
        let mut arguments = parse("::annulus::Runtime::builder()");
        for (method, value) in &self.methods {
            let value = Group::new(Delimiter::Parenthesis, value.clone());
            let dot = Punct::new('.', Spacing::Alone);
            let call = [TokenTree::Punct(dot), method.clone().into(), value.into()];
            arguments.extend(call);
        }
        arguments.extend(parse(&format!(", {future}")));
        let run = if self.start_paused { "run_paused" } else { "run_with" };
        let mut call = parse(&format!("::annulus::macro_support::{run}"));
        call.extend([TokenTree::from(Group::new(Delimiter::Parenthesis, arguments))]);
        call
    }
}

/// Turns `async fn f() -> T { … }` into `fn f() -> T { async fn f() -> T { … } ::annulus::run(f())
/// }`. Attributes and visibility move to the outer function.
fn running(
    name: &str,
    attribute: &str,
    settings: &Settings,
    function: TokenStream,
) -> Result<TokenStream, Refusal> {
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
    let run = settings.call(&format!("{called}()"));
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
