//! Files confined to a folder: symbolic links below the folder aren't followed.
//!
//! Each operation first checks every segment of its path, and a read checks again after the file was opened. A process
//! with write access to the folder can still place a link there between check and use.

use std::fmt;
use std::fs::{self, DirEntry, ReadDir};
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    RenameOptions, Result, UploadPart,
};
use tokio::task::spawn_blocking;

use super::files::staged;

/// Number of files listed at a time.
const CHUNK: usize = 512;

/// Files in a folder. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct FolderStore {
    files: Arc<LocalFileSystem>,
    root: Arc<FilePath>,
}

impl FolderStore {
    /// Opens the files in this folder, with synced writes.
    pub(super) fn new(folder: &FilePath) -> Result<Self> {
        let files = LocalFileSystem::new_with_prefix(folder)?
            .with_fsync(true)
            .with_automatic_cleanup(true);
        let root = fs::canonicalize(folder).map_err(of_io)?;
        Ok(Self {
            files: Arc::new(files),
            root: root.into(),
        })
    }

    /// Returns `true` if the path contains a symbolic link.
    async fn crosses_a_link(&self, location: &Path) -> Result<bool> {
        let (root, location) = (Arc::clone(&self.root), location.clone());
        spawn_blocking(move || crosses_a_link(&root, &location))
            .await?
            .map_err(of_io)
    }

    async fn refuse_links(&self, location: &Path) -> Result<()> {
        if self.crosses_a_link(location).await? {
            let why = format!("{location} leads through a symbolic link: links are not followed");
            return Err(Error::NotSupported { source: why.into() });
        }
        Ok(())
    }

    async fn miss_links(&self, location: &Path) -> Result<()> {
        if self.crosses_a_link(location).await? {
            let source = "there is a symbolic link on the way: links are not followed".into();
            return Err(Error::NotFound {
                path: location.to_string(),
                source,
            });
        }
        Ok(())
    }

    fn walk(
        &self,
        prefix: Option<&Path>,
        after: Option<&Path>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let (root, prefix, after) = (
            Arc::clone(&self.root),
            prefix.cloned().unwrap_or_default(),
            after.cloned(),
        );
        let begin = async move {
            let walk = spawn_blocking(move || Walk::begin(root, &prefix))
                .await?
                .map_err(of_io)?;
            Ok::<_, Error>(in_chunks(walk))
        };
        let listed = stream::once(begin).try_flatten();
        let is_after =
            move |meta: &ObjectMeta| after.as_ref().is_none_or(|after| meta.location > *after);
        listed
            .try_filter(move |meta| std::future::ready(is_after(meta)))
            .boxed()
    }

    fn lacks(&self, operation: &str) -> Error {
        Error::NotImplemented {
            operation: operation.to_owned(),
            implementer: self.to_string(),
        }
    }
}

impl fmt::Display for FolderStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for FolderStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.refuse_links(location).await?;
        self.files.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.refuse_links(location).await?;
        let inner = self.files.put_multipart_opts(location, options).await?;
        Ok(Box::new(FileUpload {
            inside: self.clone(),
            location: location.clone(),
            inner,
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.miss_links(location).await?;
        let result = self.files.get_opts(location, options).await?;
        self.miss_links(location).await?;
        Ok(result)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let inside = self.clone();
        let delete = move |location: Path| {
            let inside = inside.clone();
            async move {
                inside.miss_links(&location).await?;
                inside.files.delete(&location).await?;
                Ok(location)
            }
        };
        locations.and_then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.walk(prefix, None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.walk(prefix, Some(offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let (root, prefix) = (Arc::clone(&self.root), prefix.cloned().unwrap_or_default());
        spawn_blocking(move || top(root, &prefix))
            .await?
            .map_err(of_io)
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(self.lacks("copy"))
    }

    async fn rename_opts(&self, _: &Path, _: &Path, _: RenameOptions) -> Result<()> {
        Err(self.lacks("rename"))
    }
}

/// An upload of a large file, which is moved into place at the end.
#[derive(Debug)]
struct FileUpload {
    inside: FolderStore,
    location: Path,
    inner: Box<dyn MultipartUpload>,
}

#[async_trait]
impl MultipartUpload for FileUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.inner.put_part(data)
    }

    /// The folder may have been replaced with a link since.
    async fn complete(&mut self) -> Result<PutResult> {
        self.inside.refuse_links(&self.location).await?;
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

/// Returns `true` if one of the segments below the root is a symbolic link. Missing segments aren't links.
fn crosses_a_link(root: &FilePath, location: &Path) -> io::Result<bool> {
    let mut path = root.to_owned();
    for part in location.parts() {
        path.push(part.as_ref());
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => return Ok(true),
            Ok(_) => {}
            Err(error) if is_absence(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// All files below a folder.
struct Walk {
    root: Arc<FilePath>,
    /// Folders from the first one down to the current one.
    open: Vec<ReadDir>,
}

/// A folder entry.
enum FolderEntry {
    Folder(PathBuf),
    File(ObjectMeta),
    /// A link, a device, an unfinished file, or a name not allowed for objects.
    Other,
}

impl Walk {
    fn begin(root: Arc<FilePath>, prefix: &Path) -> io::Result<Self> {
        let mut walk = Self {
            open: Vec::new(),
            root,
        };
        if !crosses_a_link(&walk.root, prefix)? {
            walk.enter(&walk.root.join(prefix.as_ref()))?;
        }
        Ok(walk)
    }

    fn enter(&mut self, folder: &FilePath) -> io::Result<()> {
        match fs::read_dir(folder) {
            Ok(entries) => self.open.push(entries),
            Err(error) if is_absence(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn step(&mut self) -> io::Result<Option<ObjectMeta>> {
        while let Some(folder) = self.open.last_mut() {
            let Some(entry) = folder.next() else {
                self.open.pop();
                continue;
            };
            match look(&self.root, &entry?)? {
                FolderEntry::Folder(path) => self.enter(&path)?,
                FolderEntry::File(meta) => return Ok(Some(meta)),
                FolderEntry::Other => {}
            }
        }
        Ok(None)
    }
}

impl Iterator for Walk {
    type Item = Result<ObjectMeta>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().map_err(of_io).transpose()
    }
}

/// Lists on a thread that may block on the disk.
fn in_chunks(walk: Walk) -> impl futures_util::Stream<Item = Result<ObjectMeta>> + Send + 'static {
    let next = async |walk: Option<Walk>| {
        let mut walk = walk?;
        let listed = spawn_blocking(move || (walk.by_ref().take(CHUNK).collect::<Vec<_>>(), walk));
        Some(match listed.await {
            Ok((chunk, walk)) => {
                let goes_on = chunk.len() == CHUNK && chunk.iter().all(Result::is_ok);
                (chunk, goes_on.then_some(walk))
            }
            Err(error) => (vec![Err(error.into())], None),
        })
    };
    stream::unfold(Some(walk), next).flat_map(stream::iter)
}

/// Returns the files and folders directly below a folder.
fn top(root: Arc<FilePath>, prefix: &Path) -> io::Result<ListResult> {
    let mut walk = Walk::begin(root, prefix)?;
    let (mut objects, mut common_prefixes) = (Vec::new(), Vec::new());
    for entry in walk.open.pop().into_iter().flatten() {
        match look(&walk.root, &entry?)? {
            FolderEntry::Folder(path) => common_prefixes.extend(object(&walk.root, &path)),
            FolderEntry::File(meta) => objects.push(meta),
            FolderEntry::Other => {}
        }
    }
    Ok(ListResult {
        common_prefixes,
        objects,
        extensions: http::Extensions::default(),
    })
}

/// Inspects an entry without following links.
fn look(root: &FilePath, entry: &DirEntry) -> io::Result<FolderEntry> {
    let found = match entry.metadata() {
        Ok(found) => found,
        Err(error) if is_absence(&error) => return Ok(FolderEntry::Other),
        Err(error) => return Err(error),
    };
    let path = entry.path();
    if found.is_dir() {
        return Ok(FolderEntry::Folder(path));
    }
    let location =
        object(root, &path).filter(|location| found.is_file() && staged(location).is_none());
    let Some(location) = location else {
        return Ok(FolderEntry::Other);
    };
    let last_modified = found.modified()?.into();
    Ok(FolderEntry::File(ObjectMeta {
        location,
        last_modified,
        size: found.len(),
        e_tag: None,
        version: None,
    }))
}

/// Returns a file's object name.
fn object(root: &FilePath, path: &FilePath) -> Option<Path> {
    Path::parse(path.strip_prefix(root).ok()?.to_str()?).ok()
}

fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn of_io(error: io::Error) -> Error {
    Error::Generic {
        store: "folder",
        source: error.into(),
    }
}
