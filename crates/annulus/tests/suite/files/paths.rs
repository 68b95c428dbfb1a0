//! Operations on paths.

use crate::files::mode::everywhere;
use annulus::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[test]
fn files_can_be_renamed_linked_and_removed() {
    everywhere(|place| async move {
        let (a, b, c) = (place.join("a"), place.join("b"), place.join("c"));
        fs::write(&a, b"x").await?;
        fs::rename(&a, &b).await?;
        assert_eq!(fs::metadata(&a).await.unwrap_err().kind(), ErrorKind::NotFound);
        fs::hard_link(&b, &a).await?;
        assert_eq!(fs::metadata(&a).await?.nlink(), 2);
        fs::symlink("b", &c).await?;
        assert_eq!(fs::read_link(&c).await?, Path::new("b"));
        assert!(fs::symlink_metadata(&c).await?.is_symlink());
        assert!(fs::metadata(&c).await?.is_file());
        assert_eq!(fs::read(&c).await?, b"x");
        fs::remove_file(&c).await?;
        fs::remove_file(&a).await?;
        assert_eq!(fs::metadata(&b).await?.nlink(), 1);
        Ok(())
    });
}

#[test]
fn metadata_matches_std() {
    everywhere(|place| async move {
        let path = place.join("file");
        fs::write(&path, vec![0; 12_345]).await?;
        fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).await?;
        let (ours, stdlib) = (fs::metadata(&path).await?, std::fs::metadata(&path)?);
        assert_eq!(ours.len(), stdlib.len());
        assert_eq!(ours.permissions().mode(), stdlib.permissions().mode() & 0o7777);
        assert_eq!(ours.modified(), stdlib.modified()?);
        assert_eq!(ours.accessed(), stdlib.accessed()?);
        assert_eq!(ours.created(), stdlib.created().ok());
        use std::os::unix::fs::MetadataExt;
        assert_eq!(
            (ours.ino(), ours.uid(), ours.blocks()),
            (stdlib.ino(), stdlib.uid(), stdlib.blocks())
        );
        Ok(())
    });
}

#[test]
fn canonical_paths_match_std() {
    everywhere(|place| async move {
        fs::create_dir_all(place.join("d/e")).await?;
        fs::write(place.join("d/e/f"), b"").await?;
        fs::symlink("d/e", place.join("link")).await?;
        fs::symlink(place.join("link"), place.join("d/up")).await?;
        for path in ["d/e/f", "link/f", "d/up/../e/f", "d/./up/f", "."] {
            let path = place.join(path);
            assert_eq!(fs::canonicalize(&path).await?, std::fs::canonicalize(&path)?, "{path:?}");
        }
        fs::symlink("loop", place.join("loop")).await?;
        let (ours, stdlib) = (
            fs::canonicalize(place.join("loop")).await.unwrap_err(),
            std::fs::canonicalize(place.join("loop")).unwrap_err(),
        );
        assert_eq!(ours.kind(), stdlib.kind());
        Ok(())
    });
}
