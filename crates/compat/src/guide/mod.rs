//! The guide to these libraries: [`libraries`] with a table of features, and [`simulated_services`].
//! The guide to annulus itself is [`annulus::guide`].

// The pages link to items of all features, so links break when a feature is off.
#![cfg_attr(
    not(all(
        feature = "axum",
        feature = "hyper-util",
        feature = "quinn",
        feature = "rustls",
        feature = "send-stream",
        feature = "tonic",
        feature = "tower-http",
        feature = "with-tokio",
        feature = "ws"
    )),
    allow(rustdoc::broken_intra_doc_links)
)]

// Each page is a symbolic link to a file in docs/guide. The comment in
// crates/annulus/src/guide/mod.rs explains why.
macro_rules! pages {
    ($($page:ident)*) => {$(
        #[doc = include_str!("links.txt")]
        #[doc = include_str!(concat!(stringify!($page), ".md"))]
        pub mod $page {}
    )*};
}

pages! {
    libraries
    simulated_services
}
