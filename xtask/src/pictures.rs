//! Pictures of a page with charts, as the documents have them: in light, in dark, on a phone and on paper.

use std::fs;
use std::path::Path;

use crate::step::{Failure, Outcome, Step, target};

/// Without a screen, as root, and with no request of the browser's own.
const HEADLESS: &str = "--headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync --hide-scrollbars";

/// A picture of a page.
struct Picture {
    name: &'static str,
    /// In pixels: A4 with the margins of the page has 703 in its width.
    size: [u32; 2],
    is_dark: bool,
    /// Whether it has the style of paper in place of that of a screen.
    is_printed: bool,
}

const PICTURES: [Picture; 4] = [
    Picture { name: "light", size: [1100, 1400], is_dark: false, is_printed: false },
    Picture { name: "dark", size: [1100, 1400], is_dark: true, is_printed: false },
    Picture { name: "phone", size: [390, 1600], is_dark: false, is_printed: false },
    Picture { name: "print", size: [703, 1020], is_dark: false, is_printed: true },
];

/// Takes the pictures of a page, `NAME-light.png` and so on, in a directory.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let [page, directory] = arguments else {
        let text = "pictures takes a page and a directory, such as lab-results/x/nop.html docs";
        return Err(Failure::Usage(text.into()));
    };
    let absolute = |path: &str| {
        std::path::absolute(path).map_err(|error| Failure::Failed(format!("{path}: {error}")))
    };
    let (page, directory) = (absolute(page)?, absolute(directory)?);
    let html = fs::read_to_string(&page)
        .map_err(|error| Failure::Failed(format!("cannot read {}: {error}", page.display())))?;
    let name = page.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let scratch = target().join("pictures");
    // A profile of an earlier run may be locked. The first time there is none.
    let _ = fs::remove_dir_all(&scratch);
    for picture in &PICTURES {
        let out = directory.join(format!("{name}-{}.png", picture.name));
        picture.take(&html, &scratch, &out)?;
    }
    Ok(Vec::new())
}

impl Picture {
    /// In a frame of its width: a window without a screen is not as narrow as a phone.
    fn take(&self, html: &str, scratch: &Path, out: &Path) -> Result<(), Failure> {
        let mut html = html.to_owned();
        if self.is_printed {
            html = html.replace("@media screen and", "@media print and");
            html = html.replace("@media print {", "@media screen {");
        }
        let [width, height] = self.size;
        let frame = format!(
            "<!DOCTYPE html><meta name=\"color-scheme\" content=\"light dark\"><body style=\"margin:0;display:grid;justify-content:center;background:gray\">\
             <iframe style=\"border:0\" width=\"{width}\" height=\"{height}\" srcdoc=\"{}\"></iframe>",
            html.replace('&', "&amp;").replace('"', "&quot;")
        );
        let (profile, file) = (scratch.join("profile"), scratch.join("frame.html"));
        let prepared = fs::create_dir_all(scratch).and_then(|()| fs::write(&file, frame));
        prepared.map_err(|error| Failure::Failed(format!("{}: {error}", file.display())))?;
        let scheme = if self.is_dark { 0 } else { 1 };
        let browser = Step::new("chromium", HEADLESS)
            .argument(format!("--user-data-dir={}", profile.display()))
            .argument(format!("--blink-settings=preferredColorScheme={scheme}"))
            .argument(format!("--window-size={},{height}", width.max(500)))
            .argument(format!("--screenshot={}", out.display()))
            .argument(format!("file://{}", file.display()));
        // It has much to say of what it does not find on a server.
        let taken = browser.probe().map(drop);
        let why = "chromium took no picture (Debian: apt-get install chromium)";
        taken.ok_or_else(|| Failure::Failed(format!("{}: {why}", out.display())))
    }
}
