"""The Amazon Bedrock Converse wire API."""
