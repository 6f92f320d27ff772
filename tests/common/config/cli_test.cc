// Flags in every form that is allowed, refusals that name the flag and the nearest name, --help,
// --version and --completion.
#include "common/config/cli.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Values {
  std::string file = "unset";
  int32_t index = -1;
  int64_t bytes = 0;
  uint64_t seed = 1;
  double seconds = 5;
  bool fresh = false;
  std::optional<int64_t> steps;
  std::vector<std::string> sets;
};

ParsedLine Read(std::vector<const char*> arguments, Values& values) {
  Program program("cairn-test", "cairn-test tests.\n", "The end.");
  program.flags()
      .Add("file", "FILE", values.file, "a file")
      .Add("index", "N", values.index, "a number; default -1")
      .Add("bytes", "N", values.bytes, "bytes")
      .Add("seed", "N", values.seed, "a seed")
      .Add("seconds", "S", values.seconds, "a time");
  program.flags("More")
      .Add("fresh", "", values.fresh, "starts over")
      .Add("steps", "N", values.steps, "steps")
      .Add("set", "KEY=VALUE", values.sets, "several times");
  return program.Parse(arguments);
}

std::string Refusal(std::vector<const char*> arguments) {
  Values values;
  const ParsedLine line = Read(std::move(arguments), values);
  EXPECT_EQ(line.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(line.text, "");
  return std::string(line.status.message());
}

TEST(Cli, FlagsThatAreNotGivenKeepTheirDefaults) {
  Values values;
  const ParsedLine line = Read({}, values);
  ASSERT_OK(line.status);
  EXPECT_EQ(line.command, "cairn-test");
  EXPECT_EQ(line.text, "");
  EXPECT_EQ(values.file, "unset");
  EXPECT_EQ(values.index, -1);
  EXPECT_FALSE(values.fresh);
  EXPECT_EQ(values.steps, std::nullopt);
  EXPECT_THAT(values.sets, IsEmpty());
}

TEST(Cli, ValuesFollowAnEqualsSignOrAreTheNextWord) {
  Values values;
  ASSERT_OK(Read({"--file=a=b", "--index", "-7", "--bytes=4294967296", "--seconds", "1e-3",
                  "--seed=18446744073709551615", "--steps=0"},
                 values)
                .status);
  EXPECT_EQ(values.file, "a=b");
  EXPECT_EQ(values.index, -7);
  EXPECT_EQ(values.bytes, int64_t{1} << 32);
  EXPECT_EQ(values.seconds, 1e-3);
  EXPECT_EQ(values.seed, ~uint64_t{0});
  EXPECT_EQ(values.steps, 0);
}

TEST(Cli, AnEmptyValueIsEmptyAndNotTheNextWord) {
  Values values;
  ASSERT_OK(Read({"--file=", "--index=1"}, values).status);
  EXPECT_EQ(values.file, "");
  EXPECT_EQ(values.index, 1);
  EXPECT_THAT(Refusal({"--index="}), HasSubstr("flag --index: found '', expected a whole number"));
}

TEST(Cli, NumbersAreDecimalOrHexadecimalAndNeverOctal) {
  Values values;
  ASSERT_OK(Read({"--index=010", "--bytes=0x10"}, values).status);
  EXPECT_EQ(values.index, 10);
  EXPECT_EQ(values.bytes, 16);
}

TEST(Cli, TheLastOfRepeatedFlagsCountsAndListsKeepAll) {
  Values values;
  ASSERT_OK(Read({"--index=1", "--set", "a=1", "--index=2", "--set=b=[1, 2]"}, values).status);
  EXPECT_EQ(values.index, 2);
  EXPECT_THAT(values.sets, ElementsAre("a=1", "b=[1, 2]"));
}

TEST(Cli, SwitchesAreSetAndUnset) {
  for (const char* word : {"--fresh", "--fresh=true", "--fresh=yes", "--fresh=1"}) {
    Values values;
    ASSERT_OK(Read({word}, values).status) << word;
    EXPECT_TRUE(values.fresh) << word;
  }
  for (const char* word : {"--nofresh", "--fresh=false", "--fresh=0"}) {
    Values values;
    values.fresh = true;
    ASSERT_OK(Read({word}, values).status) << word;
    EXPECT_FALSE(values.fresh) << word;
  }
  Values values;
  ASSERT_OK(Read({"--nofresh", "--fresh"}, values).status);
  EXPECT_TRUE(values.fresh);
}

TEST(Cli, RefusalsNameTheFlagAndWhatIsAllowed) {
  EXPECT_EQ(Refusal({"--indx=1"}),
            "unknown flag --indx (did you mean '--index'?); cairn-test --help lists the flags");
  EXPECT_THAT(Refusal({"--flagfile=x"}), HasSubstr("unknown flag --flagfile"));
  EXPECT_THAT(Refusal({"--noindex"}), HasSubstr("unknown flag --noindex"));
  EXPECT_EQ(Refusal({"--fresh", "word"}),
            "found 'word' where a flag (--name=value) is expected; cairn-test --help lists the "
            "flags");
  EXPECT_THAT(Refusal({"--fresh", "--index"}), HasSubstr("flag --index lacks its value (N)"));
  EXPECT_THAT(Refusal({"--index=many"}),
              HasSubstr("flag --index: found 'many', expected a whole number of 32 bits"));
  EXPECT_THAT(Refusal({"--index=4294967296"}), HasSubstr("a whole number of 32 bits"));
  EXPECT_THAT(Refusal({"--steps=1.5"}), HasSubstr("a whole number of 64 bits"));
  EXPECT_THAT(Refusal({"--seed=-1"}), HasSubstr("a whole number from 0 to 2^64 - 1"));
  EXPECT_THAT(Refusal({"--seconds=soon"}), HasSubstr("found 'soon', expected a number"));
  EXPECT_THAT(Refusal({"--fresh=perhaps"}), HasSubstr("found 'perhaps', expected true or false"));
  EXPECT_THAT(Refusal({"--file=s3://bucket/x"}), HasSubstr("flag --file: found \"s3://bucket/x\""));
}

TEST(Cli, HelpListsFlagsUnderTheirHeadings) {
  for (const char* word : {"--help", "-h"}) {
    Values values;
    const ParsedLine line = Read({word}, values);
    ASSERT_OK(line.status);
    EXPECT_THAT(line.text,
                AllOf(HasSubstr("cairn-test tests.\n"), HasSubstr("Usage: cairn-test [flags]\n"),
                      HasSubstr("\nFlags:\n  --file FILE"), HasSubstr("\nMore:\n  --fresh"),
                      HasSubstr("--version"), HasSubstr("The end.\n"), Not(HasSubstr("nofresh"))));
  }
}

TEST(Cli, VersionAndCompletionArePrintedInsteadOfRunning) {
  Values values;
  EXPECT_THAT(Read({"--version"}, values).text, HasSubstr("cairn-test "));
  for (const char* shell : {"bash", "fish", "zsh"}) {
    const ParsedLine line = Read({"--completion", shell}, values);
    ASSERT_OK(line.status) << shell;
    EXPECT_THAT(line.text, AllOf(HasSubstr("--seconds"), HasSubstr("cairn_test"))) << shell;
  }
  EXPECT_THAT(Refusal({"--completion=tcsh"}), HasSubstr("bash, fish, zsh"));
}

}  // namespace
}  // namespace cairn::test
