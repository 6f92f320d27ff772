// The readers' rows per second, on one core and with a consumer of the batches in parallel. usage:
// reader_bench [FILE.libsvm [features]]; without a file, generates rows of a9a's shape. Prints JSON
// lines; `verified` says that every row and entry was read.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
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

void Die(const absl::Status& status) {
  std::fprintf(stderr, "reader_bench: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}

// Only parses, in this thread.
Totals Parse(const ReaderOptions& options) {
  absl::StatusOr<std::unique_ptr<RowSource>> source = OpenRowSource(options);
  if (!source.ok()) Die(source.status());
  Totals totals;
  Batch batch;
  for (int64_t pass = 0; pass < kPasses; ++pass) {
    if (!(*source)->Rewind(pass).ok()) Die((*source)->status());
    do {
      ClearBatch(&batch);
      while (batch.rows < options.data.batch_size && (*source)->Append(&batch)) {
      }
      Count(batch, &totals);
    } while (batch.rows == options.data.batch_size);
    if (!(*source)->status().ok()) Die((*source)->status());
  }
  return totals;
}

// The whole reader: its thread parses, this thread takes the batches.
Totals Read(const ReaderOptions& options) {
  absl::StatusOr<std::unique_ptr<Reader>> reader = Reader::Open(options);
  if (!reader.ok()) Die(reader.status());
  Totals totals;
  Batch batch;
  for (;;) {
    const absl::StatusOr<bool> more = (*reader)->Next(&batch);
    if (!more.ok()) Die(more.status());
    if (!*more) return totals;
    Count(batch, &totals);
  }
}

void Measure(const std::string& name, const ReaderOptions& options) {
  Totals expected;
  for (const bool threaded : {false, true}) {
    const absl::Time start = absl::Now();
    const Totals totals = threaded ? Read(options) : Parse(options);
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    if (!threaded) expected = totals;
    std::printf(
        "{\"bench\":\"%s\",\"rows_per_second\":%.0f,\"rows\":%lld,\"entries\":%lld,"
        "\"verified\":%s}\n",
        (name + (threaded ? " reader, batch 128" : " parsing, one core")).c_str(),
        static_cast<double>(totals.rows) / seconds, static_cast<long long>(totals.rows),
        static_cast<long long>(totals.entries),
        totals.rows == expected.rows && totals.entries == expected.entries && totals.rows > 0
            ? "true"
            : "false");
  }
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
    const std::string text = format == "libsvm" ? MakeLibsvm(random) : MakeCriteo(random);
    std::FILE* const file = std::fopen(path.c_str(), "wb");
    if (file == nullptr || std::fwrite(text.data(), 1, text.size(), file) != text.size() ||
        std::fclose(file) != 0) {
      Die(absl::UnavailableError(absl::StrCat("cannot write ", path)));
    }
    Measure(format, OptionsOf(format, path, 123));
  }
  return 0;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return cairn::Main(argc, argv); }
