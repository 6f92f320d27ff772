// Files and readers for the tests of this directory.
#pragma once

#include <zlib.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"
#include "worker/input/reader.h"

namespace cairn::test {

inline void WriteFile(const std::string& path, absl::string_view bytes) {
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr) << path;
  ASSERT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file), bytes.size());
  ASSERT_EQ(std::fclose(file), 0);
}

inline std::string Gzip(absl::string_view bytes) {
  TempDir folder;
  const gzFile file = gzopen(folder.Join("x").c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  std::string packed(1 << 20, '\0');
  std::FILE* const in = std::fopen(folder.Join("x").c_str(), "rb");
  packed.resize(std::fread(packed.data(), 1, packed.size(), in));
  std::fclose(in);
  return packed;
}

// Options for one pass over `paths` as one worker, in batches of `batch_size`.
inline ReaderOptions OptionsFor(const std::string& format, const std::vector<std::string>& paths,
                                int64_t batch_size = 1000) {
  ReaderOptions options;
  options.data.format = format;
  options.data.batch_size = batch_size;
  options.data.features = format == "libsvm" ? 10 : 0;
  options.model.loss = format == "movielens" ? "mean_squared_error" : "sigmoid_cross_entropy";
  for (const std::string& path : paths) options.files.push_back({path, ""});
  options.data.train = options.files;
  return options;
}

// Every batch of the reader; an error ends the list and is stored in *status.
inline std::vector<Batch> ReadAll(const ReaderOptions& options, absl::Status* status) {
  std::vector<Batch> batches;
  absl::StatusOr<std::unique_ptr<Reader>> reader = Reader::Open(options);
  *status = reader.status();
  if (!reader.ok()) return batches;
  for (;;) {
    Batch batch;
    const absl::StatusOr<bool> more = (*reader)->Next(&batch);
    *status = more.status();
    if (!more.ok() || !*more) return batches;
    batches.push_back(std::move(batch));
  }
}

inline std::vector<Batch> ReadAll(const ReaderOptions& options) {
  absl::Status status;
  std::vector<Batch> batches = ReadAll(options, &status);
  EXPECT_TRUE(status.ok()) << status;
  return batches;
}

// Reads `text` as `format` to the end. Returns the message of the error, or "" on success.
inline std::string ErrorOf(const std::string& format, absl::string_view text,
                           ReaderOptions options = {}) {
  TempDir folder;
  const std::string path = folder.Join("in");
  WriteFile(path, text);
  const ReaderOptions plain = OptionsFor(format, {path});
  options.files = options.data.train = plain.files;
  options.data.format = format;
  if (options.data.features == 0) options.data.features = plain.data.features;
  if (options.model.loss.empty()) options.model.loss = plain.model.loss;
  absl::Status status;
  ReadAll(options, &status);
  std::string message(status.message());
  const size_t at = message.find(path);
  if (at != std::string::npos) message.replace(at, path.size(), "in");
  return message;
}

}  // namespace cairn::test
