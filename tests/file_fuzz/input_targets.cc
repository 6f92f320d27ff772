// Data files of every format, plain and gzip.
#include <unistd.h>
#include <zlib.h>

#include <cmath>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/file_fuzz/target.h"
#include "tests/support/temp_dir.h"
#include "worker/input/reader.h"

namespace cairn::test {
namespace {

constexpr size_t kMaxInputBytes = 16 << 10;

std::string Gzip(const std::string& bytes) {
  z_stream stream = {};
  deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

struct Format {
  const char* name;
  std::vector<std::string> seeds;
  std::vector<std::string> words;
};

std::string CriteoRow(char separator) {
  std::string row = "1";
  for (int i = 1; i <= 13; ++i) absl::StrAppend(&row, std::string(1, separator), i % 3 ? "7" : "");
  for (int i = 1; i <= 26; ++i) absl::StrAppend(&row, std::string(1, separator), "68fd1e64");
  return row + "\n";
}

std::string CriteoHeader() {
  std::string row = "label";
  for (int i = 1; i <= 13; ++i) absl::StrAppend(&row, ",I", i);
  for (int i = 1; i <= 26; ++i) absl::StrAppend(&row, ",C", i);
  return row + "\n";
}

std::string IdxFile(const std::string& head, size_t bytes) {
  return head + std::string(bytes, '\x05');
}

std::vector<Format> Formats() {
  return {
      {"libsvm",
       {"1 1:0.5 3:1 10:2\n-1 2:1\n\n+1 4:1e-3 # note\n", "0 1:1\n1 9:-0.5"},
       {":", " ", "\n", "1:", "11:1", "0:1", "qid:3 ", "#", "1e39"}},
      {"criteo_tsv", {CriteoRow('\t') + CriteoRow('\t')}, {"\t", "\n", "-1", "68fd1e64"}},
      {"criteo_csv", {CriteoHeader() + CriteoRow(',') + CriteoRow(',')}, {",", "\n", "\"", "I1"}},
      {"csv",
       {"1,0.5,2\n0,1,3\n", "label,a,b\n1,2,3\n", "\"label\",\"a\"\n\"1\",\"2\"\n", "1;2;3\n"},
       {",", "\"", "\n", "\r\n", "\"\"", ";", "label"}},
      {"movielens",
       {"userId,movieId,rating,timestamp\n1,31,2.5,1260759144\n2,10,4,83535598\n",
        "1::1193::5::978300760\n", "196\t242\t3\t881250949\n"},
       {"::", ",", "\t", "userId", "\n", "5"}},
      {"text",
       {"the quick brown fox jumps over the lazy dog the end\n",
        std::string(400, 'a') + " b a b a\n", "a b c d e f g a b c d e f g a b c d e f g\n"},
       {" ", "the ", "\n", "\xc3\xa9"}},
      {"idx",
       {IdxFile(std::string("\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x02", 16), 8),
        IdxFile(std::string("\0\0\x08\x01\0\0\0\x02", 8), 2),
        IdxFile(std::string("\0\0\x0d\x02\0\0\0\x01\0\0\0\x02", 12), 8)},
       {std::string("\0\0\x08\x03", 4), std::string("\xff\xff\xff\xff", 4),
        std::string("\0\0\0\0", 4), "\x0d"}},
  };
}

class InputTarget : public FuzzTarget {
 public:
  InputTarget(Format format, bool packed) : format_(std::move(format)), packed_(packed) {}

  std::string Make(Dice& dice) override {
    std::string text = dice.Of(format_.seeds);
    Mutate(dice, format_.seeds, format_.words, kMaxInputBytes, &text);
    if (!packed_) return text;
    std::string bytes = Gzip(text);
    if (dice.OneIn(3)) Mutate(dice, {&bytes, 1}, {}, kMaxInputBytes, &bytes);
    return bytes;
  }

  std::string Try(const std::string& input) override {
    const std::string path = folder_.Join(packed_ ? "in.gz" : "in");
    std::ofstream(path, std::ios::binary) << input;
    // Images are read with a seed's labels, and labels with its images.
    is_labels_ = input.size() > 3 && input[3] == 1;
    std::ofstream(folder_.Join("other"), std::ios::binary)
        << format_.seeds[is_labels_ ? 0 : 1 % format_.seeds.size()];
    for (const bool training : {true, false}) {
      if (const std::string wrong = Read(path, training); !wrong.empty()) return wrong;
    }
    return "";
  }
  int64_t runs_of_a_test() const override { return 1000; }

 private:
  ReaderOptions OptionsFor(const std::string& path, bool training) const {
    ReaderOptions options;
    options.data.format = format_.name;
    options.data.batch_size = 3;
    options.data.features = options.data.format == "libsvm" ? 10 : 0;
    options.data.shuffle_buffer_rows = training ? 4 : 0;
    options.model.loss =
        options.data.format == "movielens" ? "mean_squared_error" : "sigmoid_cross_entropy";
    if (options.data.format == "idx") {
      options.model.loss = "softmax_cross_entropy";
      options.model.classes = 10;
      const std::string other = folder_.Join("other");
      options.files = {is_labels_ ? DataFile{other, path} : DataFile{path, other}};
    } else {
      options.files = {{path, ""}};
    }
    options.data.train = options.files;
    options.model.min_count = 1;
    options.training = training;
    return options;
  }

  std::string Read(const std::string& path, bool training) {
    auto reader = Reader::Open(OptionsFor(path, training));
    absl::Status status = reader.status();
    Batch batch;
    // There cannot be more rows than bytes, except that skip_gram makes pairs of words.
    for (size_t batches = 0; status.ok(); ++batches) {
      if (batches > kMaxInputBytes * 64) return "the batches do not end";
      const absl::StatusOr<bool> more = (*reader)->Next(&batch);
      status = more.status();
      if (status.ok() && !*more) return "";
      if (!status.ok()) break;
      if (batch.rows < 1 || batch.rows > 3 ||
          batch.labels.size() != static_cast<size_t>(batch.rows)) {
        return absl::StrCat("a batch of ", batch.rows, " rows and ", batch.labels.size(),
                            " labels");
      }
      for (const float label : batch.labels) {
        if (!std::isfinite(label)) return "a label is not finite";
      }
    }
    return WrongWithMessage(std::string(status.message()), folder_.path());
  }

  const TempDir folder_;
  const Format format_;
  const bool packed_;
  bool is_labels_ = false;
};

}  // namespace

std::vector<NamedTarget> InputTargets() {
  std::vector<NamedTarget> targets;
  static const auto& formats = *new std::vector<Format>(Formats());
  for (const Format& format : formats) {
    targets.push_back(
        {format.name, [&format] { return std::make_unique<InputTarget>(format, false); }});
  }
  targets.push_back({"gzip", [] { return std::make_unique<InputTarget>(formats[0], true); }});
  return targets;
}

}  // namespace cairn::test
