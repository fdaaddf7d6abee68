"""What seeds 000, 001 and 002 print for promises and the persistent workflow, to the letter.

Where a block is no JSON as it is printed (a comma before the end, in 001), it stays so here.
"""

from __future__ import annotations

__all__ = ["ANSWERED", "PROMISE", "SEED_001", "SEED_002", "UNFITTING"]

# Seed 000, Promise: the request and its response
PROMISE = [
    """
{
  "jsonrpc": "2.0",
  "id": 1,
  "method": "tools/call",
  "params": {
    "name": "get_weather",
    "arguments": {
      "city": "New York"
    },
    "task": {
      "ttl": 60000
    }
  }
}
""",
    """
{
  "jsonrpc": "2.0",
  "id": 1,
  "result": {
    "task": {
      "taskId": "786512e2-9e0d-44bd-8f29-789f320fe840",
      "status": "working",
      "statusMessage": "The operation is now in progress.",
      "createdAt": "2025-11-25T10:30:00Z",
      "ttl": 60000,
      "pollInterval": 5000
    }
  }
}
""",
]

# Seed 000, Promises/Tasks: the answer to a task's question, with the metadata beside the result
ANSWERED = """
{
    "jsonrpc": "2.0",
    "id": 1,
    "result": {
        "action": "accept",
        "content": {
        "propertyName": "value",
        "anotherProperty": 42
        }
    },
    "_meta": {
      "io.modelcontextprotocol/related-task": {
        "taskId": "786512e2-9e0d-44bd-8f29-789f320fe840"
      }
    }
}
"""

# Seed 001, Example Flow with Elicitations: steps 1 to 7 and 9 to 12; step 8 is no message
SEED_001 = [
    """
{
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "echo",
        "task": {
            "ttl": 60000
        }
    }
}
""",
    """
{
    "id":  1,
    "jsonrpc":  "2.0",
    "result": {
        "task": {
            "taskId":"echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5",
            "status":  "Working",
            "statusMessage": "Task has been created for echo tool invocation.",
            "createdAt":  "2026-01-27T03:32:48.3148180Z",
            "ttl": 60000,
            "pollInterval": 100
        }
    }
}
""",
    """
{
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tasks/get",
    "params": {
        "taskId": "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5"
    }
}
""",
    """
{
    "id":  2,
    "jsonrpc":  "2.0",
    "result":  
    {
        "taskId":  "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5",
        "status":  "input_require",
        "statusMessage":  "Input Required to Proceed call tasks/result",
        "createdAt":  "2026-01-27T03:38:07.7534643Z",
        "ttl":  60000,
        "pollInterval":  100
    },
}
""",
    """
{
    "jsonrpc": "2.0",
    "id": 3,
    "method": "tasks/result",
    "params": {
        "taskId": "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5"
    }
}
""",
    """
{
    "id":  3,
    "jsonrpc":  "2.0",
    "method":  "elicitation/create",
    "params":  {
        "mode":  "form",
        "message":  "Please provide the input string to echo back",
        "requestedSchema":  
        {
            "type":  "object",
            "properties":  
            {
                "input": {"type":  "string"}
            },
            "required": ["input"]
        }
    },
    "_meta":  
    {
        "io.modelcontextprotocol/related-task":  
        {
            "taskId":  "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5"
        }
    } 
}
""",
    """
{
    "jsonrpc": "2.0",
    "id": 4,
    "result": {
        "action": "accept",
            "content": {
            "input": "Hello World!"
        },
        "_meta": {
            "io.modelcontextprotocol/related-task": {
                "taskId": "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5"
            }
        }
    }
}
""",
    """
{
    "jsonrpc": "2.0",
    "id": 5,
    "method": "tasks/get",
    "params": {
        "taskId": "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5"
    }
}
""",
    """
{
    "id":  5,
    "jsonrpc":  "2.0",
    "result":  
    {
        "taskId":  "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5",
        "status":  "Completed",
        "statusMessage":  "Task has been completed successfully, call get/result",
        "createdAt":  "2026-01-27T03:38:07.7534643Z",
        "ttl":  60000,
        "pollInterval":  100
    },
}
""",
    """
{
    "id":  6,
    "jsonrpc":  "2.0",
    "method":  "tasks/result",
    "params":  
    {
        "taskId":  "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5"
    },
}
""",
    """
{
    "id":  6,
    "jsonrpc":  "2.0",
    "result":  
    {
        "isError":  false,
        "content":  
        [{
            "type":  "text",
            "text":  "Echo: Hello World!"
        }],
        "_meta":  
        {
            "io.modelcontextprotocol/related-task":  
            {
                "taskId":  "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5"
            }
        }
    },
}
""",
]

# Seed 002, Example Flow for Persistent Tools: steps 1 to 12
SEED_002 = [
    """
{
  "jsonrpc": "2.0",
  "id": 1,
  "method": "tools/call",
  "params": {
    "name": "echo",
    "task": {
      "ttl": 60000
    }
  }
}
""",
    """
{
  "id": 1,
  "jsonrpc": "2.0",
  "result": {
    "task": {
      "taskId": "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5",
      "status": "working",
      "statusMessage": "Task has been created for echo tool invocation.",
      "createdAt": "2026-01-27T03:32:48.3148180Z",
      "lastUpdatedAt": "2026-01-27T03:32:48.3148180Z",
      "ttl": 60000,
      "pollInterval": 100
    }
  }
}
""",
    """
{
  "jsonrpc": "2.0",
  "id": 2,
  "method": "tasks/get",
  "params": {
    "taskId": "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5"
  }
}
""",
    """
{
  "id": 2,
  "jsonrpc": "2.0",
  "result": {
    "taskId": "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5",
    "status": "input_required",
    "statusMessage": "Input Required to Proceed call tasks/result",
    "createdAt": "2026-01-27T03:38:07.7534643Z",
    "lastUpdatedAt": "2026-01-27T03:38:07.7534643Z",
    "ttl": 60000,
    "pollInterval": 100
  }
}
""",
    """
{
  "jsonrpc": "2.0",
  "id": 3,
  "method": "tasks/result",
  "params": {
    "taskId": "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5"
  }
}
""",
    """
{
  "id": 3,
  "jsonrpc": "2.0",
  "result": {
    "resultType": "input_required",
    "inputRequests": {
      "echo_input": {
        "method": "elicitation/create",
        "params": {
          "mode": "form",
          "message": "Please provide the input string to echo back",
          "requestedSchema": {
            "type": "object",
            "properties": {
              "input": { "type": "string" }
            },
            "required": ["input"]
          }
        }
      }
    }
  },
  "_meta": {
    "io.modelcontextprotocol/related-task": {
      "taskId": "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5"
    }
  }
}
""",
    """
{
  "jsonrpc": "2.0",
  "id": 4,
  "method": "tasks/input_response",
  "params": {
    "inputResponses": {
      "echo_input": {
        "action": "accept",
        "content": {
          "input": "Hello World!"
        }
      }
    },
    "_meta": {
      "io.modelcontextprotocol/related-task": {
        "taskId": "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5"
      }
    }
  }
}
""",
    """
{
  "id": 4,
  "jsonrpc": "2.0",
  "result": {
    "_meta": {
      "io.modelcontextprotocol/related-task": {
        "taskId": "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5"
      }
    }
  }
}
""",
    """
{
  "jsonrpc": "2.0",
  "id": 5,
  "method": "tasks/get",
  "params": {
    "taskId": "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5"
  }
}
""",
    """
{
  "id": 5,
  "jsonrpc": "2.0",
  "result": {
    "taskId": "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5",
    "status": "completed",
    "statusMessage": "Task has been completed successfully, call tasks/result",
    "createdAt": "2026-01-27T03:38:07.7534643Z",
    "lastUpdatedAt": "2026-01-27T03:38:08.1234567Z",
    "ttl": 60000,
    "pollInterval": 100
  }
}
""",
    """
{
  "id": 6,
  "jsonrpc": "2.0",
  "method": "tasks/result",
  "params": {
    "taskId": "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5"
  }
}
""",
    """
{
  "id": 6,
  "jsonrpc": "2.0",
  "result": {
    "resultType": "complete",
    "isError": false,
    "content": [
      {
        "type": "text",
        "text": "Echo: Hello World!"
      }
    ],
    "_meta": {
      "io.modelcontextprotocol/related-task": {
        "taskId": "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5"
      }
    }
  }
}
""",
]

# Seed 002, Guidance for Error Handling: steps 7 and 8 again, with an answer that does not fit
UNFITTING = [
    """
{
  "jsonrpc": "2.0",
  "id": 4,
  "method": "tasks/input_response",
  "params": {
    "inputResponses": {
      "echo_input": {
        "action": "accept",
        "content": {
          "not_requested_parameter": "Information the server did not request."
        }
      }
    },
    "_meta": {
      "io.modelcontextprotocol/related-task": {
        "taskId": "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5"
      }
    }
  }
}
""",
    """
{
  "id": 4,
  "jsonrpc": "2.0",
  "result": {
    "_meta": {
      "io.modelcontextprotocol/related-task": {
        "taskId": "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5"
      }
    }
  }
}
""",
]
