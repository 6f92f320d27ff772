// The readers' rows per second: decoded in one thread, and in several beside a consumer. usage:
// reader_bench [FILE.libsvm [features]]; without a file, generates rows of a9a's shape. Prints JSON
// lines; `verified` says that every row and entry was read.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/bench/bench.h"
#include "tests/support/temp_dir.h"
#include "worker/input/open_row_source.h"
#include "worker/input/random.h"
#include "worker/input/reader.h"

namespace cairn {
namespace {

constexpr int64_t kRows = 200000;
constexpr int64_t kPasses = 10;

struct Totals {
  int64_t rows = 0;
  int64_t entries = 0;
};

// Rows like a9a's: 14 of 123 columns, all 1.
std::string MakeLibsvm(Random& random) {
  std::string text;
  for (int64_t i = 0; i < kRows; ++i) {
    absl::StrAppend(&text, random.Below(4) == 0 ? "+1" : "-1");
    for (int64_t group = 0; group < 14; ++group) {
      absl::StrAppend(&text, " ", 1 + group * 8 + static_cast<int64_t>(random.Below(8)), ":1");
    }
    text += " \n";
  }
  return text;
}

std::string MakeCriteo(Random& random) {
  std::string text;
  for (int64_t i = 0; i < kRows / 4; ++i) {
    absl::StrAppend(&text, random.Below(2));
    for (int j = 0; j < 13; ++j) absl::StrAppend(&text, "\t", random.Below(1000));
    for (int j = 0; j < 26; ++j) {
      absl::StrAppend(&text, "\t", absl::Hex(random.Below(1u << 30), absl::kZeroPad8));
    }
    text += '\n';
  }
  return text;
}

ReaderOptions OptionsOf(const std::string& format, const std::string& path, int64_t features) {
  ReaderOptions options;
  options.data.format = format;
  options.data.features = features;
  options.data.batch_size = 128;
  options.data.epochs = kPasses;
  options.model.loss = "sigmoid_cross_entropy";
  options.files = options.data.train = {{path, ""}};
  return options;
}

void Count(const Batch& batch, Totals* totals) {
  totals->rows += batch.rows;
  totals->entries += static_cast<int64_t>(batch.columns.size() + batch.keys.size());
}

// Only reads and decodes, in this thread.
Totals Parse(const ReaderOptions& options) {
  absl::StatusOr<std::unique_ptr<RowSource>> source = OpenRowSource(options);
  Require(source.status());
  Totals totals;
  Batch batch;
  std::string bytes;
  RowPlace place;
  for (int64_t pass = 0; pass < kPasses; ++pass) {
    Require((*source)->Rewind(pass));
    do {
      ClearBatch(&batch);
      for (; batch.rows < options.data.batch_size; bytes.clear()) {
        if (!(*source)->Next(&bytes, &place)) break;
        Require((*source)->Decode(bytes, place, &batch));
      }
      Count(batch, &totals);
    } while (batch.rows == options.data.batch_size);
    Require((*source)->status());
  }
  return totals;
}

// The whole reader: its thread parses, this thread takes the batches.
Totals Read(const ReaderOptions& options) {
  absl::StatusOr<std::unique_ptr<Reader>> reader = Reader::Open(options);
  Require(reader.status());
  Totals totals;
  Batch batch;
  for (;;) {
    const absl::StatusOr<bool> more = (*reader)->Next(&batch);
    Require(more.status());
    if (!*more) return totals;
    Count(batch, &totals);
  }
}

void Measure(const std::string& name, const ReaderOptions& options) {
  Totals expected;
  const auto measure = [&](const std::string& how, const auto& run) {
    const absl::Time start = absl::Now();
    const Totals totals = run();
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    if (expected.rows == 0) expected = totals;
    std::printf(
        "{\"bench\":\"%s, %s\",\"rows_per_second\":%.0f,\"rows\":%lld,\"entries\":%lld,"
        "\"verified\":%s}\n",
        name.c_str(), how.c_str(), static_cast<double>(totals.rows) / seconds,
        static_cast<long long>(totals.rows), static_cast<long long>(totals.entries),
        totals.rows == expected.rows && totals.entries == expected.entries && totals.rows > 0
            ? "true"
            : "false");
  };
  measure("no thread", [&] { return Parse(options); });
  for (const int64_t threads : {1, 2, 4}) {
    for (const int64_t window : {int64_t{0}, kRows / 4}) {
      ReaderOptions with = options;
      with.data.parse_threads = threads;
      with.data.shuffle_buffer_rows = window;
      measure(absl::StrCat(threads, threads == 1 ? " thread" : " threads",
                           window > 0 ? ", shuffled" : ""),
              [&] { return Read(with); });
    }
  }
}

void Write(const std::string& path, const std::string& text) {
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr || std::fwrite(text.data(), 1, text.size(), file) != text.size() ||
      std::fclose(file) != 0) {
    Die(absl::StrCat("cannot write ", path));
  }
}

// Images and labels of MNIST's shape.
ReaderOptions MakeIdx(Random& random, const TempDir& folder) {
  constexpr int64_t kItems = kRows / 8;
  const auto number = [](int64_t x) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(x >> shift));
    return bytes;
  };
  std::string images = absl::StrCat(number(0x803), number(kItems), number(28), number(28));
  std::string labels = absl::StrCat(number(0x801), number(kItems));
  for (int64_t i = 0; i < kItems * 28 * 28; ++i) {
    images.push_back(static_cast<char>(random.Below(256)));
  }
  for (int64_t i = 0; i < kItems; ++i) labels.push_back(static_cast<char>(random.Below(10)));
  Write(folder.Join("images"), images);
  Write(folder.Join("labels"), labels);
  ReaderOptions options = OptionsOf("idx", folder.Join("images"), 0);
  options.files[0].labels = folder.Join("labels");
  options.model.loss = "softmax_cross_entropy";
  options.model.classes = 10;
  return options;
}

int Main(int argc, char** argv) {
  if (argc > 1) {
    Measure("libsvm", OptionsOf("libsvm", argv[1], argc > 2 ? std::atoll(argv[2]) : 123));
    return 0;
  }
  TempDir folder;
  Random random(1);
  for (const std::string format : {"libsvm", "criteo_tsv"}) {
    const std::string path = folder.Join(format);
    Write(path, format == "libsvm" ? MakeLibsvm(random) : MakeCriteo(random));
    Measure(format, OptionsOf(format, path, 123));
  }
  Measure("idx", MakeIdx(random, folder));
  return 0;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return cairn::Main(argc, argv); }
