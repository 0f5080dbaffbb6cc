resource "aws_s3_bucket" "store" {
  bucket = var.bucket
  tags   = var.tags
}

resource "aws_s3_bucket_public_access_block" "store" {
  bucket                  = aws_s3_bucket.store.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "store" {
  bucket = aws_s3_bucket.store.id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "store" {
  bucket = aws_s3_bucket.store.id

  rule {
    bucket_key_enabled = var.kms_key != null

    apply_server_side_encryption_by_default {
      sse_algorithm     = var.kms_key == null ? "AES256" : "aws:kms"
      kms_master_key_id = var.kms_key == null ? null : var.kms_key.arn
    }
  }
}

resource "aws_s3_bucket_versioning" "store" {
  bucket = aws_s3_bucket.store.id

  versioning_configuration {
    status = var.versioning ? "Enabled" : "Suspended"
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "store" {
  bucket = aws_s3_bucket.store.id

  rule {
    id     = "uploads-that-never-ended"
    status = "Enabled"

    filter {}

    abort_incomplete_multipart_upload {
      days_after_initiation = var.incomplete_days
    }
  }

  rule {
    id     = "what-was-deleted"
    status = "Enabled"

    filter {}

    noncurrent_version_expiration {
      noncurrent_days = var.noncurrent_days
    }

    expiration {
      expired_object_delete_marker = true
    }
  }

  depends_on = [aws_s3_bucket_versioning.store]
}

resource "aws_s3_bucket_policy" "store" {
  bucket = aws_s3_bucket.store.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(local.never_overwrite, [
      {
        Sid       = "OnlyOverTLS"
        Effect    = "Deny"
        Principal = "*"
        Action    = "s3:*"
        Resource  = [aws_s3_bucket.store.arn, "${aws_s3_bucket.store.arn}/*"]
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
    ])
  })

  depends_on = [aws_s3_bucket_public_access_block.store]
}
