//! The guide: how to write programs with this runtime, one subject per page.
//!
//! | page | for |
//! |---|---|
//! | [`a_first_server`] | a server in twenty lines, and what each line does |
//! | [`leases`] | received bytes: reading them in place, keeping them, and when to copy |
//! | [`sending`] | `send`, `write`, `flush`, `drain`, and what the kernel does with them |
//! | [`cancel_safety`] | what is lost when a future is dropped (little), and how to write `select!` |
//! | [`fairness`] | the budget of a task, long computations, blocking calls |
//! | [`files`] | reading, writing and sending files, and which calls leave the loop |
//! | [`shards`] | one runtime per core |
//! | [`shutting_down`] | from a signal to the last byte sent |
//! | [`cookbook`] | small programs to start from |
//! | [`coming_from_tokio`] | a worked example, a table of equivalents, and the differences that matter |
//! | [`coming_from_compio_and_monoio`] | the same for other runtimes on io_uring |
//! | [`inside_tokio`] | guest mode: sockets and files of annulus in tasks of tokio, on one thread |
//! | [`tokio_beside`] | tokio on its own thread, for a library that needs it |
//! | [`storage`] | what each call makes durable, direct I/O, errors, and power cuts |
//! | [`small_writes`] | replies in pieces that leave in one system call |
//! | [`testing`] | client and server on a simulated kernel: virtual time, faults, one seed |
//! | [`simulated_network`] | your service on a simulated network: partitions, crashes, a failing seed and its replay |
//! | [`deployment`] | a systemd unit, limits, and which kernel |
//! | [`drivers`] | io_uring, epoll, and what `annulus doctor` says |
//! | [`tuning`] | which settings are worth a measurement |
//! | [`observing`] | statistics, tasks, and a program that hangs |
//! | [`faq`] | questions with short answers |
//! | [`status`] | what works, what you need, and which versions get fixes |
//!
//! The crate `annulus-compat` has the pages on axum, tonic, TLS, databases and other libraries.
//!
//! # In the repository
//!
//! Other pages of the book are in the directory `docs` of the repository, which also has the
//! results of all measurements; `cargo xtask book` builds the whole book, with search.

// The attribute macros exist only with the feature `macros`.
#![cfg_attr(not(feature = "macros"), allow(rustdoc::broken_intra_doc_links))]

// Each page is a symbolic link to a file in docs/guide, which code hosts and mdBook also show. The
// link definitions at the end of a file refer to other pages and to source files. For rustdoc,
// links.txt comes first and defines the same labels as items: the first definition of a label
// counts. `cargo xtask style links` checks both.
macro_rules! pages {
    ($($page:ident)*) => {$(
        #[doc = include_str!("links.txt")]
        #[doc = include_str!(concat!(stringify!($page), ".md"))]
        pub mod $page {}
    )*};
}

pages! {
    a_first_server
    leases
    sending
    cancel_safety
    fairness
    files
    shards
    shutting_down
    cookbook
    coming_from_tokio
    coming_from_compio_and_monoio
    inside_tokio
    tokio_beside
    storage
    small_writes
    testing
    simulated_network
    deployment
    drivers
    tuning
    observing
    faq
    status
}
