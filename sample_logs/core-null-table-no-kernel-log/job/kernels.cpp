#include <stdexcept>
#include <string>
#include <thread>
#include <pthread.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cstring>
extern "C" float gather_row(const float* table, long row, long dim) {
  float sum = 0;
  for (long i = 0; i < dim; i++) sum += table[row * dim + i];
  return sum;
}
extern "C" void check_shape(long rows) {
  if (rows != 64) throw std::runtime_error("expected 64 rows, got " + std::to_string(rows));
}
extern "C" void fill_shared(const char* path, long size) {
  int fd = open(path, O_RDWR | O_CREAT, 0600);
  if (ftruncate(fd, size)) return;
  char* page = (char*)mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  memset(page, 1, size);
}
static void prefetch(const float* table) { gather_row(table, 5, 8); }
extern "C" void crash_in_thread() { std::thread t(prefetch, (const float*)nullptr); t.join(); }
extern "C" long walk_tree(long depth) { volatile char pad[4096]; pad[0] = depth; return walk_tree(depth + 1) + pad[0]; }
