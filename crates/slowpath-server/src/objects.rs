// SPDX-License-Identifier: Apache-2.0
//! Object stores with the S3 protocol, where tables may lie as well.
//!
//! `s3://BUCKET` or `s3://BUCKET/PREFIX`. Keys, region and endpoint are those of the environment (`AWS_ACCESS_KEY_ID`,
//! `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT`, `AWS_ALLOW_HTTP`, ...). Without the feature `object-store` none can be opened.

use slowpath_fleet::ObjectStore;

/// Opens the store of a URL. It is not asked for anything yet.
///
/// # Errors
/// The URL is none of a store, what the environment states is incomplete, or this program was built without object stores; in words.
#[cfg(not(feature = "object-store"))]
pub fn open(_: &str) -> Result<Box<dyn ObjectStore>, String> {
    let text = "this slowpath was built without object stores: build it with `cargo build --release -p slowpath --features object-store`";
    Err(text.to_owned())
}

#[cfg(feature = "object-store")]
pub use s3::{open, open_with};

#[cfg(feature = "object-store")]
mod s3 {
    use super::ObjectStore;
    use futures_util::{StreamExt as _, TryStreamExt as _, stream};
    use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
    use object_store::path::Path;
    use object_store::{
        BackoffConfig, ClientConfigKey, Error, ObjectStore as _, ObjectStoreExt as _, PutPayload,
        RetryConfig,
    };
    use std::ffi::OsString;
    use std::io;
    use std::time::Duration;
    use tokio::runtime::{Builder, Runtime};

    /// How long a request may take, with its retries; then the caller tries again later.
    const REQUEST: Duration = Duration::from_secs(20);
    const RETRIES: usize = 3;

    /// Opens the store of a URL. It is not asked for anything yet.
    ///
    /// # Errors
    /// The URL is none of a store, or what the environment states is incomplete; in words.
    pub fn open(url: &str) -> Result<Box<dyn ObjectStore>, String> {
        // What is not UTF-8 is none of them.
        let text = |(key, value): (OsString, OsString)| {
            Some((key.into_string().ok()?, value.into_string().ok()?))
        };
        open_with(url, std::env::vars_os().filter_map(text))
    }

    /// The same with settings by the names of the environment; others than `AWS_…` count for nothing.
    ///
    /// # Errors
    /// As [`open`].
    pub fn open_with(
        url: &str,
        settings: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Box<dyn ObjectStore>, String> {
        let failed =
            |error: &dyn std::fmt::Display| format!("cannot open the store {url}: {error}");
        let rest = url.strip_prefix("s3://").unwrap_or_default();
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(failed(&"it is not s3://BUCKET or s3://BUCKET/PREFIX"));
        }
        // Whoever has installed one before has the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = AmazonS3Builder::new();
        for (name, value) in settings {
            let key = name.to_ascii_lowercase();
            if key.starts_with("aws_")
                && let Ok(key) = key.parse()
            {
                builder = builder.with_config(key, value);
            }
        }
        let store = builder
            .with_bucket_name(bucket)
            .with_retry(RetryConfig {
                backoff: BackoffConfig::default(),
                max_retries: RETRIES,
                retry_timeout: REQUEST,
            })
            .with_config(
                AmazonS3ConfigKey::Client(ClientConfigKey::Timeout),
                format!("{} s", REQUEST.as_secs()),
            )
            .build()
            .map_err(|error| failed(&error))?;
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Box::new(Bucket {
            store,
            prefix: Path::parse(prefix).map_err(|error| failed(&error))?,
            runtime: runtime.map_err(|error| failed(&error))?,
        }))
    }

    struct Bucket {
        store: AmazonS3,
        prefix: Path,
        /// Runs in the caller's thread, while it waits.
        runtime: Runtime,
    }

    impl Bucket {
        fn path(&self, name: &str) -> io::Result<Path> {
            let name = Path::parse(name).map_err(io::Error::other)?;
            Ok(self.prefix.parts().chain(name.parts()).collect())
        }
    }

    impl ObjectStore for Bucket {
        fn put(&mut self, name: &str, bytes: Vec<u8>) -> io::Result<()> {
            let path = self.path(name)?;
            let put = self.store.put(&path, PutPayload::from(bytes));
            self.runtime.block_on(put).map(|_| ()).map_err(stated)
        }

        fn list(&mut self, prefix: &str) -> io::Result<Vec<String>> {
            let path = self.path(prefix)?;
            let found: Vec<_> = self
                .runtime
                .block_on(self.store.list(Some(&path)).try_collect())
                .map_err(stated)?;
            let own = self.prefix.parts().count();
            let name = |meta: object_store::ObjectMeta| {
                let parts: Vec<String> = (meta.location.parts().skip(own))
                    .map(|part| part.as_ref().to_owned())
                    .collect();
                parts.join("/")
            };
            Ok(found.into_iter().map(name).collect())
        }

        fn delete(&mut self, names: Vec<String>) -> io::Result<()> {
            let paths: Vec<Path> = (names.iter())
                .map(|name| self.path(name))
                .collect::<io::Result<_>>()?;
            let paths = stream::iter(paths.into_iter().map(Ok)).boxed();
            let mut deleted = self.store.delete_stream(paths);
            self.runtime.block_on(async {
                while let Some(one) = deleted.next().await {
                    match one {
                        Ok(_) | Err(Error::NotFound { .. }) => {}
                        Err(error) => return Err(stated(error)),
                    }
                }
                Ok(())
            })
        }
    }

    fn stated(error: Error) -> io::Error {
        io::Error::other(error)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_no_store_is_named_with_the_way_out() {
        let error = super::open("ftp://example.org").err().expect("no store");
        let way_out = match cfg!(feature = "object-store") {
            true => "s3://BUCKET/PREFIX",
            false => "--features object-store",
        };
        assert!(error.contains(way_out), "{error}");
    }
}
