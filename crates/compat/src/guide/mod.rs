//! The guide to services on these libraries. The guide to annulus itself is [`annulus::guide`].

// Each page is a link to a file in docs/guide, like those of `annulus`: see the comment there.
macro_rules! pages {
    ($($page:ident)*) => {$(
        #[doc = include_str!("links.txt")]
        #[doc = include_str!(concat!(stringify!($page), ".md"))]
        pub mod $page {}
    )*};
}

#[cfg(feature = "tower")]
pages! {
    simulated_services
}
