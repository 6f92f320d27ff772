/* A C program with a model and gradients of its own: y = w . x + taste(user), on rows that it makes
 * up. usage: cairn-embed-c [job description]; without one, a server in this process.
 *
 *   cc -std=c11 embed.c $(pkg-config --cflags --libs cairn-client) -lm -o cairn-embed-c
 *   ./cairn-embed-c '{servers: ["127.0.0.1:7001"], job: embed, worker: 0}' */
#include <cairn/c.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { kColumns = 4, kRows = 64, kSteps = 2000, kUsers = 500 };

static const char kVariables[] =
    "[{name: w, shape: [4], optimizer: {type: adagrad, learning_rate: 0.5}},"
    " {name: taste, dim: 1, optimizer: {type: adagrad, learning_rate: 0.5}}]";

/* Uniform in [-1, 1]. */
static float draw(void) { return (float)rand() / (float)(RAND_MAX / 2) - 1.0f; }

static int train(cairn_client *client) {
  static const int64_t kWShape[] = {kColumns}, kTasteShape[] = {kRows, 1};
  float w[kColumns], d_w[kColumns], taste[kRows], d_taste[kRows];
  int64_t users[kRows];
  cairn_item pulls[2] = {
      {.variable = "w", .dtype = CAIRN_FLOAT32, .rank = 1, .shape = kWShape, .data = w},
      {.variable = "taste", .dtype = CAIRN_FLOAT32, .rank = 2, .shape = kTasteShape,
       .part = CAIRN_KEYS, .ids = users, .id_count = kRows, .data = taste}};
  cairn_item pushes[2] = {pulls[0], pulls[1]};
  pushes[0].data = d_w;
  pushes[1].data = d_taste;

  int code = cairn_create(client, kVariables, 0);
  for (int step = 1; code == CAIRN_OK && step <= kSteps; ++step) {
    for (int r = 0; r < kRows; ++r) users[r] = rand() % kUsers;
    code = cairn_pull(client, pulls, 2, 0);
    if (code != CAIRN_OK) break;
    double loss = 0;
    for (int c = 0; c < kColumns; ++c) d_w[c] = 0;
    for (int r = 0; r < kRows; ++r) {
      float x[kColumns], error = taste[r] - sinf((float)users[r]);
      for (int c = 0; c < kColumns; ++c) {
        x[c] = draw();
        error += x[c] * (w[c] - (float)(c + 1)); /* the truth: w = 1, 2, 3, 4 */
      }
      loss += error * error / kRows;
      for (int c = 0; c < kColumns; ++c) d_w[c] += 2 * error * x[c] / kRows;
      d_taste[r] = 2 * error / kRows; /* gradients of a user drawn twice are summed */
    }
    code = cairn_push(client, pushes, 2, NULL, 0, 0);
    if (step % 500 == 0) printf("step %d loss %.4f w[3] %.3f\n", step, loss, w[3]);
  }
  return code == CAIRN_OK ? cairn_leave(client, 0) : code;
}

static int run(const char *description) {
  cairn_servers *servers = NULL;
  cairn_client *client = NULL;
  char own[256];
  int code = CAIRN_OK;
  if (description == NULL) {
    char *addresses = NULL;
    code = cairn_launch("{directory: cairn-data/embed-c}", &servers);
    if (code == CAIRN_OK) code = cairn_launched_addresses(servers, &addresses);
    if (code != CAIRN_OK) return code;
    snprintf(own, sizeof(own), "{servers: [\"%s\"], job: embed, worker: 0}", addresses);
    cairn_free_text(addresses);
    description = own;
  }
  code = cairn_connect(description, 0, &client);
  if (code == CAIRN_OK) code = train(client);
  if (client != NULL) cairn_close(client);
  if (servers != NULL && code == CAIRN_OK) code = cairn_stop_servers(servers);
  return code;
}

/* Says, among others, which server the program waits for. */
static void warn(void *context, int level, const char *file, int line, const char *message) {
  (void)context, (void)level, (void)file, (void)line;
  fprintf(stderr, "cairn-embed-c: %s\n", message);
}

int main(int argc, char **argv) {
  cairn_set_log(warn, NULL, CAIRN_LOG_WARNING);
  const int code = run(argc > 1 ? argv[1] : NULL);
  if (code != CAIRN_OK) {
    fprintf(stderr, "cairn-embed-c: %s: %s\n", cairn_code_name(code), cairn_last_error_message());
  }
  return code == CAIRN_OK ? 0 : 1;
}
