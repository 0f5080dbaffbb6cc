"""Cache trees and the machine they lie on, read from disk without importing torch."""
